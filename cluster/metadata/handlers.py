"""The entries of the API table for metadata, topics and settings."""

from __future__ import annotations

from collections.abc import Iterable

from ..config import BrokerConfig
from ..host.seam import Host
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from .cache import MetadataCache
from .client_quotas_api import ClientQuotasApi
from .configs_api import ConfigsApi
from .metadata_api import MetadataApi
from .topic_admin import TopicAdmin
from .topic_partitions_api import TopicPartitionsApi
from .topics_api import TopicsApi

__all__ = ["MetadataHandlers"]


class MetadataHandlers:
    """Metadata of cluster and topics; topics created and deleted; settings and quotas read and changed."""

    def __init__(self, host: Host, config: BrokerConfig, cache: MetadataCache, admin: TopicAdmin) -> None:
        self._metadata = MetadataApi(config, cache, admin, host.trace)
        self._topics = TopicsApi(host, config, cache, admin)
        self._configs = ConfigsApi(config, cache, admin)
        self._quotas = ClientQuotasApi(admin.registry, admin.retries, config)
        self._partitions = TopicPartitionsApi(config, cache)

    def handlers(self) -> Iterable[ApiRow]:
        """The API table's entries."""
        incremental = self._configs.incremental_alter_configs
        return (
            ApiRow(ApiKey.METADATA, 0, 13, self._metadata.metadata),
            ApiRow(ApiKey.UPDATE_METADATA, 8, 8, self._metadata.update_metadata),
            ApiRow(ApiKey.CREATE_TOPICS, 2, 7, self._topics.create_topics),
            ApiRow(ApiKey.DELETE_TOPICS, 1, 6, self._topics.delete_topics),
            ApiRow(ApiKey.DESCRIBE_CONFIGS, 1, 4, self._configs.describe_configs),
            ApiRow(ApiKey.ALTER_CONFIGS, 0, 2, self._configs.alter_configs),
            ApiRow(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, incremental),
            ApiRow(ApiKey.DESCRIBE_CLUSTER, 0, 2, self._metadata.describe_cluster),
            ApiRow(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, self._quotas.describe),
            ApiRow(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, self._quotas.alter),
            ApiRow(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, self._configs.list_config_resources),
            ApiRow(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, self._partitions.describe),
        )
