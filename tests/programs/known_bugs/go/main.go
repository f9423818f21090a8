// Two programs with franz-go, which run until SIGTERM:
//
//	PROGRAM send BOOTSTRAP TOPIC   sends orders (send.go)
//	PROGRAM read BOOTSTRAP TOPIC   reads orders in a group (read.go)
//
// They are built with v1.20.6 (old.mod), which has a known bug for each, and with v1.21.2 (go.mod).
package main

import (
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	servers, topic := strings.Split(os.Args[2], ","), os.Args[3]
	switch os.Args[1] {
	case "send":
		send(servers, topic, stop)
	case "read":
		read(servers, topic, stop)
	default:
		log.Fatalf("unknown program %q: expected send or read", os.Args[1])
	}
}
