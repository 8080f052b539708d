package bccn

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Request and reply, as every client of the bus does it.
//
// Rules:
//  1. A request is a message whose first line is a token; answers are directed to who sent it and begin with the same
//     line. Tokens cannot be guessed and belong to one client: what begins like ours is an answer, perhaps a late one.
//  2. A request is published once. Who listens on this host the daemon says at once. If nobody does, and no answer came
//     within askAfter, the daemons of the other hosts are asked: those with listeners answer, with the token and a "?".
//     After so many questions without any answer nobody listens: one lost datagram is not taken for that.

const (
	tokenLimit   = 128 // bytes
	questions    = 3
	askAfter     = 20 * time.Millisecond // whoever answers at once costs the segment no question
	askEvery     = 100 * time.Millisecond
	answersLimit = 65536 // to one request: beyond this it is a flood
)

// exchange is a request of ours on its way; under Client.mu.
type exchange struct {
	channel   string
	answers   queue
	settled   bool // somebody listens, or it is not to be known
	confirmed bool // the daemon has taken it, or complained
	rejection *Error
}

func newToken() string {
	var random [8]byte
	_, _ = rand.Read(random[:])
	return hex.EncodeToString(random[:]) + "."
}

// isAnswer takes answers to requests of this client, in time or late. A request to all also comes back to who asks: that
// is none.
func (c *Client) isAnswer(message Message) bool {
	line, answer, _ := bytes.Cut(message.Payload, []byte{'\n'})
	token := string(line)
	if !strings.HasPrefix(token, c.token) {
		return false
	}
	exchange := c.exchanges[strings.TrimSuffix(token, "?")]
	switch {
	case exchange == nil:
	case message.Channel == exchange.channel:
		return false
	default:
		exchange.settled = true
		if message.Payload = answer; !strings.HasSuffix(token, "?") && len(exchange.answers.messages) < answersLimit {
			c.put(&exchange.answers, message)
		}
	}
	return true
}

// blame tells whether it is a request of this client that the daemon rejected just now.
func (c *Client) blame(err *Error) bool {
	for _, exchange := range c.exchanges {
		if !exchange.confirmed && strings.HasPrefix(err.Text, "MSG "+exchange.channel+":") {
			exchange.rejection = err
			return true
		}
	}
	return false
}

// Request asks on channel and returns the first answer. Errors: Nobody, within a third of a second, when no program of
// this host or of another with a daemon would get it; Timeout.
func (c *Client) Request(ctx context.Context, channel string, question []byte) (Message, error) {
	answers, err := c.RequestMany(ctx, channel, question, 1)
	if err != nil {
		return Message{}, err
	}
	return answers[0], nil
}

// RequestMany is Request for the first so many answers, or with 0 for all that come before ctx ends (at the latest after
// Options.Timeout, where ctx has no deadline). Fewer are an error only when there is none.
func (c *Client) RequestMany(ctx context.Context, channel string, question []byte, most int) ([]Message, error) {
	ctx, cancel := c.patience(ctx)
	defer cancel()
	defer c.press()()
	if most <= 0 {
		most = answersLimit
	}
	exchange, token := c.begin(channel)
	defer c.finish(exchange, token)
	if err := c.publishRequest(ctx, exchange, token, question); err != nil {
		return nil, err
	}
	var answers []Message
	due, left := time.Now().Add(askAfter), questions
	for len(answers) < most {
		stage, done := ctx, func() {}
		if !c.isSettled(exchange) {
			stage, done = context.WithDeadline(ctx, due)
		}
		message, err := c.next(stage, &exchange.answers)
		done()
		switch {
		case err == nil:
			answers = append(answers, message)
		case !isCode(err, Closed, Unavailable) && ctx.Err() != nil && len(answers) > 0:
			return answers, nil
		case ctx.Err() != nil:
			return nil, overdue(ctx, Timeout, "no answer on "+channel+" in time")
		case !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		case c.isSettled(exchange):
		case left == 0:
			return nil, &Error{Code: Nobody, Text: "nobody listens to " + channel}
		default:
			due, left = time.Now().Add(askEvery), left-1
			if err := c.askOthers(ctx, exchange, token); err != nil {
				return nil, err
			}
		}
	}
	return answers, nil
}

func (c *Client) begin(channel string) (*exchange, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	token := c.token + strconv.FormatUint(c.requests, 10)
	exchange := &exchange{channel: channel, answers: newQueue()}
	c.exchanges[token] = exchange
	return exchange, token
}

func (c *Client) finish(exchange *exchange, token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.exchanges, token)
	for _, more := c.take(&exchange.answers); more; _, more = c.take(&exchange.answers) { // nobody will
	}
}

func (c *Client) isSettled(exchange *exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return exchange.settled
}

// publishRequest hands it to the daemon, once, and learns who listens here. What was published before is settled first.
func (c *Client) publishRequest(ctx context.Context, exchange *exchange, token string, question []byte) error {
	c.mu.Lock()
	hearing, unsettled := c.listening || c.hearing, c.published > c.confirmed
	c.mu.Unlock()
	var err error
	if !hearing {
		_, err = c.ask(ctx, "listen", "", func(string) { c.hearing = true }, nil)
	} else if unsettled {
		_, err = c.ask(ctx, "ping", "", nil, nil)
	}
	if err == nil {
		err = c.publish(exchange.channel, token+"\n", question)
	}
	if err != nil {
		return err
	}
	listeners, err := c.ask(ctx, "listeners", exchange.channel, nil, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	exchange.confirmed = true
	if exchange.rejection != nil {
		return exchange.rejection
	}
	if isCode(err, UnknownKey) { // an older daemon: whether somebody listens is not to be known
		err = nil
	}
	exchange.settled = exchange.settled || listeners != "0"
	return err
}

// askOthers has the daemon ask those of the other hosts. It answers <n>, <n> asked or <n> busy.
func (c *Client) askOthers(ctx context.Context, exchange *exchange, token string) error {
	answer, err := c.ask(ctx, "listeners", exchange.channel+" "+token+"?", nil, nil)
	if err != nil {
		return err
	}
	listeners, outcome, _ := strings.Cut(answer, " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	exchange.settled = exchange.settled || listeners != "0" || outcome == "busy"
	if !exchange.settled && outcome != "asked" {
		text := "nobody on this host listens to " + exchange.channel + ", which does not leave it"
		return &Error{Code: Nobody, Text: text}
	}
	return nil
}

// A Request is what somebody asks of this program: its Payload is the question.
type Request struct {
	Message
	token  string
	client *Client
}

// AsRequest takes a message for a request, with Options.Full; false: it is none, or from nobody known.
func (c *Client) AsRequest(message Message) (*Request, bool) {
	token, question, found := bytes.Cut(message.Payload, []byte{'\n'})
	known := message.Src != "" && message.Src != "?" && !strings.Contains(message.Src, "*")
	if !found || !known || len(token) == 0 || len(token) > tokenLimit {
		return nil, false
	}
	message.Payload = question
	return &Request{message, string(token), c}, true
}

// Reply answers, from any goroutine, as often as wanted; errors are those of Publish.
func (r *Request) Reply(answer []byte) error {
	return r.client.publish("!"+r.Src, r.token+"\n", answer)
}

// Serve has handler answer the requests that come, one at a time, until ctx ends; then it returns ctx.Err(). The handler
// calls Reply, or has another goroutine do it later. Needs Options.Full. What is no request is passed over: a program
// that wants other messages, too, receives them itself and calls AsRequest.
func (c *Client) Serve(ctx context.Context, handler func(*Request)) error {
	if !c.options.Full {
		return &Error{Code: Invalid, Text: "who asks is only known with Options.Full"}
	}
	for {
		message, err := c.Receive(ctx)
		if err != nil {
			return err
		}
		if request, ok := c.AsRequest(message); ok {
			handler(request)
		}
	}
}
