package Net::Bccn::Protocol;

# The packets of the local socket (clients/PROTOCOL.md, "Packets") and the rules of patterns: pure functions, no I/O.
#
# A message is a hash: channel, payload, and in the format full src, seq, peer, time_ns, verdict, datagram; for a tap
# with interfaces also interface.
# An answer or a notice of the daemon is an array of key and value.

use strict;
use warnings;

use Exporter 'import';

our $VERSION   = '0.1.0';
our @EXPORT_OK = qw(PACK parse unpack_packets pack_packets pattern_regex split_request);

use constant PACK => 'PACK ';

# Bytes of the first line of a request.
use constant TOKEN_LIMIT => 128;

# Reads one packet (not a PACK). Returns undef: it cannot be read.
sub parse {
    my $nul  = index $_[0], "\0";
    if ($nul >= 0) {
        return { channel => substr($_[0], 4, $nul - 4), payload => substr $_[0], $nul + 1 }
            if substr($_[0], 0, 4) eq 'MSG ';
        my $kind = substr $_[0], 0, 5;
        return [ substr($_[0], 5, $nul - 5), substr($_[0], $nul + 1) ] if $kind eq 'CMSG ';
        return _parse_full(substr($_[0], 5, $nul - 5), substr($_[0], $nul + 1)) if $kind eq 'RECV ';
    }
    return;
}

# Reads RECV <peer> <unix_ns> <verdict>[ <interface>] NUL <datagram>. Only a tap gets an interface, or a datagram that is
# not BCCN1: it has no channel.
sub _parse_full {
    my ($head, $datagram) = @_;
    my ($peer, $time, $verdict, $interface) = $head =~ /\A([^ ]*) ([0-9]{1,20}) ([^ ]*)(?: ([^ ]+))?\z/ or return;
    my $full = { channel => '', payload => '', peer => $peer, time_ns => $time + 0, verdict => $verdict,
                 datagram => $datagram };
    $full->{interface} = $interface if defined $interface;
    if ($datagram =~ /\A[^\]]*\]([^:|]*):([0-9]{1,20}):([^:|]*)\|/) {
        @{$full}{qw(src seq channel payload)} = ($1, $2 + 0, $3, substr $datagram, $+[0]);
    }
    return $full;
}

sub pack_packets {
    return PACK . pack '(N/a*)*', @_;
}

# Returns the packets inside a PACK; undef: it cannot be read. unpack() ignores lengths that reach beyond the end, or dies
# of them; packing again finds these.
sub unpack_packets {
    my ($pack) = @_;
    my @packets = eval { unpack 'x5 (N/a*)*', $pack };
    return pack_packets(@packets) eq $pack ? \@packets : undef;
}

# Returns a regular expression for the channels that a subscription brings:
#
#     a/b      that channel                 a/*/c    `*` is the rest of one token, possibly nothing
#     a/       `a/` and anything after      a/>      `a/` and at least one byte after
#     (empty)  every channel                >        every channel
#
# No pattern matches `!...`, which clients get by name. The daemon refuses a `*` elsewhere, which matches nothing.
sub pattern_regex {
    my ($pattern, $separator) = @_;
    my $within = "[^\Q$separator\E]*";
    my @tokens = split /\Q$separator/, $pattern, -1;
    my $last   = @tokens ? pop @tokens : '';
    my @parts  = map { _token_regex($_, $within) } @tokens;
    push @parts, $last eq '' ? '.*' : $last eq '>' ? '.+' : _token_regex($last, $within);
    my $regex = join quotemeta $separator, @parts;
    return qr/\A(?!!)$regex\z/s;
}

sub _token_regex {
    my ($token, $within) = @_;
    my ($before, $after) = $token =~ /\A([^*]*)\*(.*)\z/s or return quotemeta $token;
    return $after eq '' ? quotemeta($before) . $within : '(?!)';
}

# Returns the token of a request and what is asked, from its payload; nothing: it is not a request.
sub split_request {
    my $end = index $_[0], "\n";
    return $end >= 1 && $end <= TOKEN_LIMIT ? (substr($_[0], 0, $end), substr $_[0], $end + 1) : ();
}

1;
