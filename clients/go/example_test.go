package bccn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	bccn "github.com/bccnd/bccnd/clients/go"
)

// These examples run where a daemon is, at $BCCN_SOCKET. README.md shows parts of them.

var ctx = context.Background()

func opened(options bccn.Options) *bccn.Client {
	bus, err := bccn.Open(ctx, "", options)
	if err != nil {
		log.Fatal(err)
	}
	return bus
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleOpen() {
	bus, err := bccn.Open(ctx, "", bccn.Options{
		Format:   bccn.FormatFull,
		Queue:    bccn.Queue{Packets: 1000, Policy: bccn.PolicyDropNewest},
		Wait:     10 * time.Second,
		OnNotice: func(notice bccn.Notice) { log.Print(notice) },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer bus.Close()
	fmt.Println(strings.HasPrefix(bus.Name(), "here/"))
	// Output: true
}

func ExampleClient_Subscribe() {
	bus := opened(bccn.Options{})
	defer bus.Close()
	readings, err := bus.Subscribe(ctx, "sensors/>")
	if err != nil {
		log.Fatal(err)
	}
	defer readings.Close(ctx)
	must(bus.Publish(ctx, "sensors/kitchen", []byte("21.5")))
	message, err := readings.Receive(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(message.Channel, message.Text())
	// Output: sensors/kitchen 21.5
}

func ExampleSubscription_Messages() {
	bus := opened(bccn.Options{})
	defer bus.Close()
	doors, err := bus.Subscribe(ctx, "doors/*")
	must(err)
	alarms, err := bus.Subscribe(ctx, "alarms/>")
	must(err)
	must(bus.Publish(ctx, "alarms/fire", []byte("kitchen")))
	select {
	case message := <-doors.Messages():
		fmt.Println("door", message.Text())
	case message := <-alarms.Messages():
		fmt.Println("alarm", message.Text())
	case <-time.After(time.Minute):
		fmt.Println("all quiet")
	}
	// Output: alarm kitchen
}

func ExampleClient_Receive() {
	bus := opened(bccn.Options{})
	defer bus.Close()
	for _, pattern := range []string{"orders/new", "orders/paid"} {
		_, err := bus.Subscribe(ctx, pattern)
		must(err)
	}
	must(bus.Publish(ctx, "orders/new", []byte("17")))
	must(bus.Publish(ctx, "orders/paid", []byte("17")))
	for range 2 { // in the order in which they were published
		message, err := bus.Receive(ctx)
		must(err)
		fmt.Println(message.Channel, message.Text())
	}
	// Output:
	// orders/new 17
	// orders/paid 17
}

func ExampleCallback() {
	bus := opened(bccn.Options{})
	defer bus.Close()
	done := make(chan struct{})
	_, err := bus.Subscribe(ctx, "doors/*", bccn.Callback(func(message bccn.Message) {
		fmt.Println(message.Channel, message.Text())
		close(done)
	}))
	must(err)
	must(bus.Publish(ctx, "doors/front", []byte("open")))
	<-done
	// Output: doors/front open
}

func ExampleClient_Listen() {
	bus := opened(bccn.Options{})
	defer bus.Close()
	stop := make(chan string)
	err := bus.Listen(ctx, bccn.Callback(func(message bccn.Message) { stop <- message.Text() }))
	must(err)
	must(bus.PublishTo(ctx, bus.Name(), []byte("stop")))
	fmt.Println(<-stop)
	// Output: stop
}

func ExampleClient_Serve() {
	server := opened(bccn.Options{Format: bccn.FormatFull})
	defer server.Close()
	upper, err := server.Serve(ctx, "text/upper", func(request *bccn.Request) []byte {
		return bytes.ToUpper(request.Payload)
	})
	if err != nil {
		log.Fatal(err)
	}
	defer upper.Close(ctx)

	bus := opened(bccn.Options{})
	defer bus.Close()
	brief, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	reply, err := bus.Request(brief, "text/upper", []byte("hello"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Text())
	// Output: HELLO
}

func ExampleRequest_Reply() {
	server := opened(bccn.Options{Format: bccn.FormatFull})
	defer server.Close()
	_, err := server.Serve(ctx, "jobs/slow", func(request *bccn.Request) []byte {
		go func() {
			must(request.Reply(ctx, []byte("done")))
		}()
		return nil // the goroutine replies
	})
	must(err)
	reply, err := server.Request(ctx, "jobs/slow", nil)
	must(err)
	fmt.Println(reply.Text())
	// Output: done
}

func ExampleClient_RequestMany() {
	server := opened(bccn.Options{Format: bccn.FormatFull})
	defer server.Close()
	_, err := server.Serve(ctx, "hosts/who", func(*bccn.Request) []byte { return []byte("here") })
	must(err)

	bus := opened(bccn.Options{})
	defer bus.Close()
	for reply, err := range bus.RequestMany(ctx, "hosts/who", nil, 1) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(reply.Text())
	}
	// Output: here
}

func ExampleClient_Watch() {
	viewer := opened(bccn.Options{})
	defer viewer.Close()
	_, err := viewer.Subscribe(ctx, "camera/>")
	must(err)

	bus := opened(bccn.Options{})
	defer bus.Close()
	viewers := make(chan bool, 1)
	err = bus.Watch(ctx, "camera/front", func(_ string, wanted bool) { viewers <- wanted })
	must(err)
	fmt.Println(<-viewers)
	// Output: true
}

func ExampleClient_Batch() {
	bus := opened(bccn.Options{Pack: true})
	defer bus.Close()
	readings, err := bus.Subscribe(ctx, "sensors/>")
	must(err)
	batch := bus.Batch()
	for _, room := range []string{"kitchen", "cellar"} {
		must(batch.Publish(ctx, "sensors/"+room, []byte("21.5")))
	}
	must(batch.Flush(ctx))
	must(bus.Barrier(ctx)) // the daemon has them
	for range 2 {
		message, err := readings.Receive(ctx)
		must(err)
		fmt.Println(message.Channel)
	}
	// Output:
	// sensors/kitchen
	// sensors/cellar
}

func ExampleError() {
	bus := opened(bccn.Options{OnNotice: func(bccn.Notice) {}})
	defer bus.Close()
	must(bus.Publish(ctx, "demo/large", make([]byte, 2000)))
	err := bus.Barrier(ctx)
	if errors.Is(err, bccn.ErrTooLarge) {
		fmt.Println("too large")
	}
	var rejection *bccn.Error
	if errors.As(err, &rejection) {
		fmt.Println(rejection.Code, strings.HasPrefix(rejection.Text, "MSG demo/large:"))
	}
	// Output:
	// too large
	// too-large true
}

func ExampleClient_Clients() {
	bus := opened(bccn.Options{})
	defer bus.Close()
	rows, err := bus.Clients(ctx)
	must(err)
	var clients []struct {
		Name          string
		Subscriptions int
	}
	must(json.Unmarshal(rows, &clients))
	for _, client := range clients {
		if client.Name == bus.Name() {
			fmt.Println(client.Subscriptions)
		}
	}
	// Output: 0
}
