package bccn

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These tests check the package against the golden vectors, which ../vectors/README.md describes.

type vector struct {
	Name, Why, Type                      string
	Pattern, Separator, Channel, Verdict string
	Packet, Payload, Key, Value, Chan    string
	Src, Seq, Peer, Datagram, Interface  string
	UnixNs                               string `json:"unix_ns"`
	Packets                              []string
	Matches, Canonical                   bool
}

func vectors(t testing.TB, file, list string) []vector {
	t.Helper()
	data, err := os.ReadFile("../vectors/" + file + ".json")
	if err != nil {
		t.Fatal(err)
	}
	// In lists that are not for clients some fields have other types.
	lists := map[string]json.RawMessage{}
	var found []vector
	if err := json.Unmarshal(data, &lists); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(lists[list], &found); err != nil || len(found) == 0 {
		t.Fatalf("%s.json, %s: %d entries, %v", file, list, len(found), err)
	}
	return found
}

func each(t *testing.T, file, list, types string, test func(t *testing.T, v vector)) {
	for _, v := range vectors(t, file, list) {
		if types == "" || slices.Contains(strings.Fields(types), v.Type) {
			t.Run(v.Name+v.Why, func(t *testing.T) { test(t, v) })
		}
	}
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func same(t *testing.T, found, expected any) {
	t.Helper()
	if found != expected {
		t.Errorf("%q, not %q", found, expected)
	}
}

// everything reads a packet as a client does, and returns the packets in it.
func everything(packet []byte) (inside [][]byte, err error) {
	take := func(part []byte) error {
		inside = append(inside, part)
		_, _, _, err := parse(part, "")
		return err
	}
	if isPack(packet) {
		return inside, unpack(packet, take)
	}
	return inside, take(packet)
}

func TestPatternsMatchAsInTheDaemon(t *testing.T) {
	each(t, "patterns", "matches", "", func(t *testing.T, v vector) {
		same(t, Matches(v.Pattern, v.Channel, Separator(v.Separator)), v.Matches)
	})
}

func TestMessagesAreReadAndWritten(t *testing.T) {
	each(t, "sbus", "valid", "MSG", func(t *testing.T, v vector) {
		packet := unhex(t, v.Packet)
		message, key, _, err := parse(packet, "")
		if err != nil || key != "" {
			t.Fatal(key, err)
		}
		same(t, message.Channel, v.Chan)
		same(t, string(message.Payload), string(unhex(t, v.Payload)))
		written, err := appendMsg(nil, message.Channel, "", message.Payload)
		if err != nil || v.Canonical && !bytes.Equal(written, packet) {
			t.Errorf("%q, %v", written, err)
		}
	})
}

func TestSubscriptionsAreWritten(t *testing.T) {
	each(t, "sbus", "valid", "SUB UNSUB", func(t *testing.T, v vector) {
		packet, err := buildSub(v.Type, v.Pattern)
		if err != nil || v.Canonical && !bytes.Equal(packet, unhex(t, v.Packet)) {
			t.Errorf("%q, %v", packet, err)
		}
	})
}

func TestControlIsReadAndWritten(t *testing.T) {
	each(t, "sbus", "valid", "CMSG", func(t *testing.T, v vector) {
		if !v.Canonical {
			return // the daemon writes only canonical packets
		}
		_, key, value, err := parse(unhex(t, v.Packet), "")
		if err != nil {
			t.Fatal(err)
		}
		same(t, key, v.Key)
		same(t, value, string(unhex(t, v.Value)))
		packet, err := buildControl(key, value)
		if err != nil {
			t.Fatal(err)
		}
		same(t, string(packet), string(unhex(t, v.Packet)))
	})
}

func TestFullMessagesAreRead(t *testing.T) {
	test := func(t *testing.T, v vector) {
		message, _, _, err := parse(unhex(t, v.Packet), "")
		if err != nil {
			t.Fatal(err)
		}
		same(t, message.Peer, v.Peer)
		same(t, message.Verdict, v.Verdict)
		same(t, string(message.Datagram), string(unhex(t, v.Datagram)))
		if ns, err := strconv.ParseInt(v.UnixNs, 10, 64); err == nil {
			same(t, message.Time, time.Unix(0, ns))
		}
		same(t, message.Interface, v.Interface)
	}
	each(t, "sbus", "valid", "RECV", test)
	each(t, "sbus", "tapped", "RECV", test)
}

func TestEverySoundDatagramIsRead(t *testing.T) {
	each(t, "bccn1", "valid", "", func(t *testing.T, v vector) {
		message, _, _, err := parse(append([]byte("RECV 10.0.0.1:5400 17 ok\x00"), unhex(t, v.Datagram)...), v.Chan)
		if err != nil {
			t.Fatal(err)
		}
		seq, _ := strconv.ParseUint(v.Seq, 10, 64)
		same(t, message.Src, v.Src)
		same(t, message.Seq, seq)
		same(t, message.Channel, v.Chan)
		same(t, string(message.Payload), string(unhex(t, v.Payload)))
	})
}

func TestPacksAreTakenApart(t *testing.T) {
	each(t, "sbus", "valid", "PACK", func(t *testing.T, v vector) {
		var inside []string
		err := unpack(unhex(t, v.Packet), func(packet []byte) error {
			inside = append(inside, hex.EncodeToString(packet))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		same(t, strings.Join(inside, " "), strings.Join(v.Packets, " "))
	})
}

func TestBrokenPacketsAreAProtocolError(t *testing.T) {
	each(t, "sbus", "invalid", "", func(t *testing.T, v vector) {
		if !strings.HasPrefix(v.Name, "RECV:") && !strings.HasPrefix(v.Name, "PACK:") {
			return // only the daemon reads the others
		}
		if _, err := everything(unhex(t, v.Packet)); !errors.Is(err, ErrProtocol) {
			t.Error(err)
		}
	})
}

func FuzzHostilePacketsAreReadOrAProtocolError(f *testing.F) {
	for _, v := range vectors(f, "sbus", "valid") {
		f.Add(unhex(f, v.Packet))
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		if _, err := everything(packet); err != nil && !errors.Is(err, ErrProtocol) {
			t.Error(err)
		}
	})
}
