"""The zoo: bugs that Kafka really had, each a plant (`harrow.cluster.planting`) that any command and test can use.

    module                  number and name                      what it replaces                      found as
    kip_101                 1   KIP-101, first case              the truncation strategy `kip-320`     lost-write
    kip_101_power_loss      2   KIP-101, second case             the truncation strategy              replica-divergence
    kip_279                 3   KIP-279                          the truncation strategy              replica-divergence
    kip_320                 4   KIP-320                          strategy, `Partition.fence_epoch`    replica-divergence
    kafka_7128              5   KAFKA-7128                       `Partition.may_join_isr`              lost-write
    kafka_7415              6   KAFKA-7415                       `Partition.store_epoch_start`         lost-write
    kip_497                 7   KIP-497                          `IsrState.maximal_isr`                lost-write
    kip_966                 8   KIP-966                          `Log.messages_before_fsync`           lost-write
    kip_903                 9   KIP-903                          `RegistryIsrStore.checks`            lost-write
    kip_841                 10  KIP-841                          `is_isr_eligible`, `checks`           fenced-in-isr
    kafka_6082              11  KAFKA-6082                       `WonElection.check`, `get_many`       not-converged
    kafka_14704             12  KAFKA-14704                      `ReplicaFetcher.diverged`            lost-write
    kafka_9835              13  KAFKA-9835                       `FetchReader.read_limit`             lost-write
    kafka_10471             14  KAFKA-10471                      `LogFolder.remove_marker`, indexes lost-write
    kafka_10778             15  KAFKA-10778                      `LogAvailability.fence`               lost-write
    kafka_7866              16  KAFKA-7866                       `Log.finish_append`                inconsistent-offsets
    kafka_5494              17  KAFKA-5494                       `ProducerEntry.batches_to_remember`   duplicate
    kafka_9807              18  KAFKA-9807                       `Partition.last_stable_offset`        aborted-read
    kafka_5376              19  KAFKA-5376                       `DelayedFetch.on_complete`            aborted-read
    kafka_6119              20  KAFKA-6119                       `TransactionService.abort_timed_out`  missing-output
    kip_890_part_1          21  KIP-890, part 1                  `TransactionChecks.must_ask`          stuck-lso
    kip_890_part_2          22  KIP-890, part 2                  `TransactionService.end`              duplicate-output
    kafka_10080             23  KAFKA-10080                      `MarkerSender.written`                stuck-lso
    kafka_17507             24  KAFKA-17507                      `TransactionalOffsetsApi.marker_written` missing-output
    kafka_13636             25  KAFKA-13636                      `OffsetRetention.subscriptions_count` duplicate-output
    kafka_13091             28  KAFKA-13091                      `Partition.advance_after_isr`         missed-wake-up
    kafka_14334             29  KAFKA-14334                      `WakeUps.follower_high_watermark_moved` missed-wake-up
    kafka_19446             36  KAFKA-19446                      `ProducerEntry.accepts_marker`        missing-output

The numbers are those of docs/zoo.md. Each module's head says what happened in Kafka, which
faults make it visible, and which anomaly the verdict names. The broker's own code is not changed.
"""
