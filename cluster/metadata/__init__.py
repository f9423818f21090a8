"""What every broker knows of the cluster, and what clients ask and change of it.

Owns: the `MetadataCache` that the controller's UpdateMetadata fills, the handlers that read it, and
`TopicAdmin`, which creates, deletes and configures topics in the registry.
"""

from .cache import MetadataCache
from .config_changes import ConfigChanges
from .handlers import MetadataHandlers
from .topic_admin import NewTopic, TopicAdmin

__all__ = ["ConfigChanges", "MetadataCache", "MetadataHandlers", "NewTopic", "TopicAdmin"]
