"""The zoo: bugs that Kafka really had, each a plant (`harrow.cluster.planting`) that any command and test can use.

    module                  number and name                      what it replaces                      found as
    kip_101                 1   KIP-101, first case              the truncation strategy `kip-320`     lost-write
    kip_101_power_loss      2   KIP-101, second case             the truncation strategy              replica-divergence
    kip_279                 3   KIP-279                          the truncation strategy              replica-divergence
    kip_320                 4   KIP-320                          strategy, `Partition.fence_epoch`    replica-divergence
    kafka_7128              5   KAFKA-7128                       `Partition.may_join_isr`              lost-write
    kafka_7415              6   KAFKA-7415                       `Partition.store_epoch_start`         lost-write
    kip_497                 7   KIP-497                          `IsrState.maximal_isr`                lost-write
    kafka_6082              11  KAFKA-6082                       `WonElection.check`, `get_many`       not-converged
    kafka_5494              17  KAFKA-5494                       `ProducerEntry.batches_to_remember`   duplicate

The numbers are those of docs/zoo.md. Each module's head says what happened in Kafka, which
faults make it visible, and which anomaly the verdict names. The broker's own code is not changed.
"""
