package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	pause     = 20 * time.Millisecond
	patience  = time.Second
	sendAgain = 2 * patience
)

// send sends numbered orders with an idempotent producer, and prints those that are acknowledged. It waits one second
// for each order, and then continues with the next one. In v1.20.6 an order that is in the log with the response
// REQUEST_TIMED_OUT can be cancelled, and the next order has its sequence number (issue 1217, mended in v1.20.7).
func send(servers []string, topic string, stop chan os.Signal) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers...), kgo.ClientID("franz-orders"),
		kgo.RetryBackoffFn(func(int) time.Duration { return sendAgain }),
	)
	if err != nil {
		log.Fatal(err)
	}
	for number := 0; ; number++ {
		select {
		case <-stop:
			client.Close()
			return
		case <-time.After(pause):
			sendOne(client, topic, fmt.Sprintf("order %d", number))
		}
	}
}

func sendOne(client *kgo.Client, topic string, order string) {
	limited, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	record := &kgo.Record{Topic: topic, Value: []byte(order)}
	if err := client.ProduceSync(limited, record).FirstErr(); err != nil {
		log.Println(order, err)
		return
	}
	fmt.Println("acknowledged", order)
}
