package bccn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The packets of the local socket (clients/PROTOCOL.md, "Packets"; clients/vectors/sbus.json).

const (
	packPrefix     = "PACK "
	datagramPrefix = "BCCN"
	whiteSpace     = " \t\n\v\f\r\x00"

	// In bytes: a length in a PACK; a packet of the daemon (clients/PROTOCOL.md, "The socket"). Buffers have one byte
	// more, which shows that a packet is longer.
	lengthSize   = 4
	receiveLimit = 128 * 1024
)

// A Message is one message. The fields below Lost are set only in FormatFull. Callbacks and streams that get the same
// message share its bytes: a program that wants to change them makes a copy.
type Message struct {
	Channel string // "!" and "!<target>": to all, to this program
	Payload []byte
	Lost    uint64 // messages that the daemon dropped directly before this one: this program read too slowly

	Src       string    // the source: "<host>/<program>/<pid>", or "?" for a sender without a name
	Seq       uint64    // the number of the message within its source
	Peer      string    // "ip:port", or "local" for a sender on this host
	Time      time.Time // when the daemon received it
	Verdict   string    // "ok" or "retained"; to a tap also why it was not delivered
	Interface string    // with TapInterface: by which it came, "-" for a sender on this host
	Datagram  []byte    // the whole BCCN1 datagram
}

// Text returns the payload as a string.
func (m Message) Text() string { return string(m.Payload) }

// Retained reports whether the message is the last value of its channel, from before the subscription. It needs
// FormatFull.
func (m Message) Retained() bool { return m.Verdict == "retained" }

// isRejected reports whether a tap shows a datagram that was not delivered.
func (m Message) isRejected() bool {
	return !slices.Contains([]string{"", "ok", "repaired", "retained"}, m.Verdict)
}

// parse reads one packet (not a PACK): a message, or the key and value of a control packet. If the message is on the
// channel last, that is its Channel: messages of one channel need no memory for it.
func parse(packet []byte, last string) (message Message, key, value string, err error) {
	kind, rest, _ := bytes.Cut(packet, []byte{' '})
	head, tail, found := bytes.Cut(rest, []byte{0})
	switch string(kind) {
	case "MSG":
		if found {
			return Message{Channel: channelOf(head, last), Payload: tail}, "", "", nil
		}
	case "CMSG":
		if len(head) > 0 {
			return Message{}, string(head), string(tail), nil
		}
	case "RECV":
		if message, ok := parseFull(string(head), tail, last); ok && found {
			return message, "", "", nil
		}
	}
	return Message{}, "", "", alien(packet)
}

func channelOf(head []byte, last string) string {
	if string(head) == last {
		return last
	}
	return string(head)
}

func parseFull(head string, datagram []byte, last string) (Message, bool) {
	fields := strings.Split(head, " ")
	if len(fields) == 4 && fields[3] != "" { // the interface: only a tap gets it
		message, ok := parseFull(head[:strings.LastIndexByte(head, ' ')], datagram, last)
		message.Interface = fields[3]
		return message, ok
	}
	if len(fields) != 3 || fields[1] == "" || strings.Trim(fields[1], "0123456789") != "" || len(fields[1]) > 20 {
		return Message{}, false
	}
	ns, _ := strconv.ParseInt(fields[1], 10, 64) // a time beyond int64 becomes the last one
	message := Message{Peer: fields[0], Time: time.Unix(0, ns), Verdict: fields[2], Datagram: datagram}
	// Only a tap gets bytes that are not BCCN1: those have no fields.
	_, body, _ := bytes.Cut(datagram, []byte{']'})
	header, payload, found := bytes.Cut(body, []byte{'|'})
	parts := bytes.Split(header, []byte{':'})
	if !found || len(parts) != 3 {
		return message, true
	}
	seq, err := strconv.ParseUint(string(parts[1]), 10, 64)
	if err == nil {
		message.Src, message.Seq, message.Payload = string(parts[0]), seq, payload
		message.Channel = channelOf(parts[2], last)
	}
	return message, true
}

func alien(packet []byte) error {
	return &Error{Code: ErrProtocol, Text: fmt.Sprintf("the daemon sent %.32q, which is not a packet of this protocol", packet)}
}

func isPack(packet []byte) bool { return bytes.HasPrefix(packet, []byte(packPrefix)) }

// unpack calls take with each packet inside a PACK.
func unpack(packet []byte, take func([]byte) error) error {
	for rest := packet[len(packPrefix):]; len(rest) > 0; {
		if len(rest) < lengthSize {
			return alien(packet)
		}
		size := uint64(binary.BigEndian.Uint32(rest))
		if rest = rest[lengthSize:]; size > uint64(len(rest)) {
			return alien(packet)
		}
		if err := take(rest[:size:size]); err != nil {
			return err
		}
		rest = rest[size:]
	}
	return nil
}

// appendMsg appends a MSG packet. It refuses only a NUL in the channel, which would end the channel early; the daemon
// checks the rest.
func appendMsg(buffer []byte, channel, head string, payload []byte) ([]byte, error) {
	if strings.IndexByte(channel, 0) >= 0 {
		return buffer, &Error{Code: ErrInvalid, Text: fmt.Sprintf("channel %q: must not contain NUL", channel)}
	}
	buffer = append(append(append(buffer, "MSG "...), channel...), 0)
	return append(append(buffer, head...), payload...), nil
}

func buildSub(word, pattern string) ([]byte, error) {
	for i := 0; i < len(pattern); i++ {
		if pattern[i] >= 0x80 || strings.IndexByte(whiteSpace, pattern[i]) >= 0 {
			return nil, &Error{Code: ErrInvalid, Text: fmt.Sprintf("pattern %q: must be ASCII without white space", pattern)}
		}
	}
	return []byte(word + " " + pattern), nil
}

func buildControl(key, value string) ([]byte, error) {
	if key == "" || strings.ContainsAny(key, whiteSpace) {
		return nil, &Error{Code: ErrInvalid, Text: fmt.Sprintf("control key %q: must not be empty nor contain white space", key)}
	}
	return []byte("CMSG " + key + "\x00" + value), nil
}

// Matches reports whether a subscription to pattern brings messages of channel. The daemon
// delivers one copy of a message and does not say which patterns match (clients/PROTOCOL.md, "Channels and patterns").
func Matches(pattern, channel string, separator Separator) bool {
	if strings.HasPrefix(channel, "!") {
		return false
	}
	for {
		first, below, more := strings.Cut(pattern, string(separator))
		token, rest, deeper := strings.Cut(channel, string(separator))
		switch {
		case !more && first == "":
			return true
		case !more && first == ">":
			return channel != ""
		case !more:
			return !deeper && tokenMatches(first, token)
		case !deeper || !tokenMatches(first, token):
			return false
		}
		pattern, channel = below, rest
	}
}

func tokenMatches(pattern, token string) bool {
	star := strings.IndexByte(pattern, '*')
	if star < 0 {
		return pattern == token
	}
	return star == len(pattern)-1 && strings.HasPrefix(token, pattern[:star]) // a * elsewhere can never match
}
