package Bccn::Protocol;

# The packets of the local socket and the rules of patterns: pure functions, no I/O.
#
# A message is a hash: channel, payload, and in the format full src, seq, peer, time_ns, verdict, datagram.
# An answer or a notice of the daemon is a reference to an array of key and value.

use strict;
use warnings;

use Exporter 'import';

use Bccn::Error;

our $VERSION   = '0.1.0';
our @EXPORT_OK = qw(PACK parse unpack_packets pack_packets pattern_regex question_at);

use constant PACK        => 'PACK ';
use constant TOKEN_LIMIT => 128;       # bytes of the first line of a request

# What one packet (not a PACK) says.
sub parse {
    my $nul  = index $_[0], "\0";
    if ($nul >= 0) {
        return { channel => substr($_[0], 4, $nul - 4), payload => substr $_[0], $nul + 1 }
            if substr($_[0], 0, 4) eq 'MSG ';
        my $kind = substr $_[0], 0, 5;
        return [ substr($_[0], 5, $nul - 5), substr($_[0], $nul + 1) ] if $kind eq 'CMSG ';
        return _parse_full(substr($_[0], 5, $nul - 5), substr($_[0], $nul + 1)) if $kind eq 'RECV ';
    }
    return _alien();
}

# RECV <peer> <unix_ns> <verdict> NUL <datagram>. A datagram that is not BCCN1 only a tap gets to see: it has no channel.
sub _parse_full {
    my ($head, $datagram) = @_;
    my ($peer, $time, $verdict) = $head =~ /\A([^ ]*) ([0-9]{1,20}) ([^ ]*)\z/ or _alien();
    my $full = { channel => '', payload => '', peer => $peer, time_ns => $time + 0, verdict => $verdict,
                 datagram => $datagram };
    if ($datagram =~ /\A[^\]]*\]([^:|]*):([0-9]{1,20}):([^:|]*)\|/) {
        @{$full}{qw(src seq channel payload)} = ($1, $2 + 0, $3, substr $datagram, $+[0]);
    }
    return $full;
}

sub _alien {
    return Bccn::Error->throw('protocol', 'the daemon sent what is not of this protocol');
}

sub pack_packets {
    return PACK . pack '(N/a*)*', @_;
}

# The packets inside a PACK. unpack() overlooks lengths that reach beyond the end, or dies of them; packing again tells.
sub unpack_packets {
    my ($pack) = @_;
    my @packets = eval { unpack 'x5 (N/a*)*', $pack };
    return pack_packets(@packets) eq $pack ? @packets : _alien();
}

# A regular expression for the channels that a subscription brings:
#
#     a/b      that channel                 a/*/c    `*` is the rest of one token, possibly nothing
#     a/       `a/` and anything after      a/>      `a/` and at least one byte after
#     (empty)  every channel                >        every channel
#
# Never `!...`: that goes by name. A `*` elsewhere is refused by the daemon and matches nothing.
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

# Where the question begins in the payload of a request, behind its first line, the token; undef: it is none.
sub question_at {
    my $end = index $_[0], "\n";
    return $end >= 1 && $end <= TOKEN_LIMIT ? $end + 1 : undef;
}

1;
