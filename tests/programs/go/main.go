// Sends numbered orders to one topic until SIGTERM, with the client that the first argument names, and then prints how
// many were acknowledged. It sends each order once; an order that fails ends it.
//
//	orders franz|sarama BOOTSTRAP TOPIC
//
// franz-go is idempotent by default. The sarama here is v1.43.0 with its defaults: it is not idempotent, and sends again
// what has no response.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

const pause = 2 * time.Millisecond

func main() {
	client, servers, topic := os.Args[1], strings.Split(os.Args[2], ","), os.Args[3]
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	var acknowledged int
	if client == "franz" {
		acknowledged = withFranz(servers, topic, stop)
	} else {
		acknowledged = withSarama(servers, topic, stop)
	}
	fmt.Println("acknowledged", acknowledged)
}

// numbers sends an order after each pause, until stop.
func numbers(stop chan os.Signal, send func(string)) {
	for number := 0; ; number++ {
		select {
		case <-stop:
			return
		case <-time.After(pause):
			send(fmt.Sprintf("order %d", number))
		}
	}
}

func withFranz(servers []string, topic string, stop chan os.Signal) int {
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.ClientID("franz-orders"))
	if err != nil {
		log.Fatal(err)
	}
	acknowledged := 0
	numbers(stop, func(order string) {
		client.Produce(context.Background(), &kgo.Record{Topic: topic, Value: []byte(order)}, func(_ *kgo.Record, err error) {
			if err != nil {
				log.Fatal(err)
			}
			acknowledged++
		})
	})
	if err := client.Flush(context.Background()); err != nil {
		log.Fatal(err)
	}
	client.Close()
	return acknowledged
}

func withSarama(servers []string, topic string, stop chan os.Signal) int {
	config := sarama.NewConfig()
	config.ClientID = "sarama-orders"
	config.Version = sarama.V2_8_0_0
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Retry.Max = 100
	config.Producer.Return.Successes = true
	producer, err := sarama.NewAsyncProducer(servers, config)
	if err != nil {
		log.Fatal(err)
	}
	acknowledged := 0
	done := make(chan bool)
	go func() {
		for range producer.Successes() {
			acknowledged++
		}
		done <- true
	}()
	go func() {
		for failed := range producer.Errors() {
			log.Fatal(failed.Err)
		}
	}()
	numbers(stop, func(order string) {
		producer.Input() <- &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(order)}
	})
	producer.AsyncClose()
	<-done
	return acknowledged
}
