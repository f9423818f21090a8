"""What every broker stores about the cluster, and the requests that read and change it.

Owns: the `MetadataCache`, which the controller's UpdateMetadata fills, the handlers that read it, `TopicAdmin`, which
creates and deletes topics in the registry, and `ConfigStore`, which stores settings there.
"""

from .cache import MetadataCache
from .config_changes import ConfigChanges
from .handlers import MetadataHandlers
from .new_topic import NewTopic
from .topic_admin import TopicAdmin

__all__ = ["ConfigChanges", "MetadataCache", "MetadataHandlers", "NewTopic", "TopicAdmin"]
