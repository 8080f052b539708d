// Worker answers requests on jobs/upper with the text in capitals, counts them in its heartbeat, and stops when somebody
// sends it "stop".
//
//	go run ./examples/worker &
//	bccn req jobs/upper 'hello there'
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"bccn"
)

const beat = 5 * time.Second

func main() {
	log.SetFlags(0)
	log.SetPrefix("worker: ")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, strings.Join(os.Args[1:], "")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, address string) error {
	bus, err := bccn.Open(address, bccn.Options{
		Full:     true, // shows who asks
		Wait:     10 * time.Second,
		OnNotice: func(notice bccn.Notice) { log.Print(notice) },
	})
	if err != nil {
		return err
	}
	defer bus.Close()
	if err := bus.Heartbeat(ctx, beat, "ready"); err != nil {
		return err
	}
	if err := bus.Subscribe(ctx, "jobs/upper"); err != nil {
		return err
	}
	fmt.Println(bus.Name(), "is ready")

	done := 0
	for {
		select {
		case <-ctx.Done():
			return finish(bus, done)
		case message := <-bus.Messages():
			request, ok := bus.AsRequest(message)
			if strings.HasPrefix(message.Channel, "!") && message.Text() == "stop" {
				return finish(bus, done)
			}
			if message.Channel != "jobs/upper" || !ok {
				continue
			}
			if err := request.Reply(bytes.ToUpper(request.Payload)); err != nil {
				return err
			}
			done++
			if err := bus.Heartbeat(ctx, beat, fmt.Sprint(done, " done")); err != nil {
				return err
			}
		}
	}
}

func finish(bus *bccn.Client, done int) error {
	fmt.Println(done, "done")
	return bus.Barrier(context.Background()) // everything has arrived
}
