package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

// read reads orders in a group, and prints them. v1.20.6 does not look at the error that an OffsetFetch has for the
// whole group: the client stays a member, and reads nothing (commit de2dff52, mended in v1.21.0).
func read(servers []string, topic string, stop chan os.Signal) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers...), kgo.ClientID("franz-reader"), kgo.ConsumerGroup("billing-"+topic),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		log.Fatal(err)
	}
	limited, cancel := context.WithCancel(context.Background())
	go func() {
		<-stop
		cancel()
	}()
	for limited.Err() == nil {
		fetches := client.PollFetches(limited)
		fetches.EachError(func(topic string, partition int32, err error) { log.Println(topic, partition, err) })
		fetches.EachRecord(func(record *kgo.Record) { fmt.Println("read", string(record.Value)) })
	}
	client.Close()
}
