// Worker replies to requests on jobs/upper with the text in capitals, counts them in its heartbeat, and stops when
// somebody sends it "stop".
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
	"sync/atomic"
	"syscall"
	"time"

	bccn "github.com/bccnd/bccnd/clients/go"
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

func run(ctx context.Context, path string) error {
	bus, err := bccn.Open(ctx, path, bccn.Options{
		Format:   bccn.FormatFull, // shows who asks
		Wait:     10 * time.Second,
		OnNotice: func(notice bccn.Notice) { log.Print(notice) },
	})
	if err != nil {
		return err
	}
	defer bus.Close()
	stopped := make(chan error, 1)
	stop := func(err error) {
		select {
		case stopped <- err:
		default: // it stops already
		}
	}
	var done atomic.Int64
	if err := bus.Heartbeat(ctx, beat, "ready"); err != nil {
		return err
	}
	err = bus.Listen(ctx, bccn.Callback(func(message bccn.Message) {
		if message.Text() == "stop" {
			stop(nil)
		}
	}))
	if err != nil {
		return err
	}
	jobs, err := bus.Serve(ctx, "jobs/upper", func(request *bccn.Request) []byte {
		err := request.Reply(ctx, bytes.ToUpper(request.Payload))
		if err == nil {
			err = bus.Heartbeat(ctx, beat, fmt.Sprint(done.Add(1), " done"))
		}
		if err != nil && ctx.Err() == nil {
			stop(err)
		}
		return nil // the reply has been sent: the heartbeat counts it
	})
	if err != nil {
		return err
	}
	fmt.Println(bus.Name(), "is ready")

	select {
	case <-ctx.Done():
	case err := <-stopped:
		if err != nil {
			return err
		}
	}
	end := context.Background()
	if err := jobs.Close(end); err != nil {
		return err
	}
	fmt.Println(done.Load(), "done")
	return bus.Barrier(end) // the daemon has everything
}
