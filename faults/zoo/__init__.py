"""The zoo: bugs that Kafka really had, each a plant (`harrow.cluster.planting`) that any command and test can use.

    module                  number and name                      what it replaces                      found as
    kip_101                 1   KIP-101, first case              the truncation strategy `kip-320`     lost-write
    kafka_7128              5   KAFKA-7128                       `Partition.may_join_isr`              lost-write
    kip_966                 8   KIP-966                          `Log.messages_before_fsync`           lost-write
    kip_903                 9   KIP-903                          `RegistryIsrStore.checks`            lost-write
    kafka_14704             12  KAFKA-14704                      `ReplicaFetcher.diverged`            lost-write
    kafka_9835              13  KAFKA-9835                       `FetchReader.read_limit`             lost-write
    kafka_10778             15  KAFKA-10778                      `LogAvailability.fence`               lost-write
    kafka_7866              16  KAFKA-7866                       `Log.finish_append`                inconsistent-offsets
    kafka_5494              17  KAFKA-5494                       `ProducerEntry.batches_to_remember`    duplicate

The numbers are those of docs/zoo.md. Each module's head says what happened in Kafka, which
faults make it visible, and which anomaly the verdict names. The broker's own code is not changed.
"""
