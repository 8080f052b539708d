# Tests with the golden vectors of packets and patterns that a client writes, reads or matches.
use strict;
use warnings;

use FindBin;
use JSON::PP ();
use Test::More;

use Net::Bccn::Protocol qw(PACK parse unpack_packets pack_packets pattern_regex);

my $folder = "$FindBin::Bin/vectors";

sub vectors {
    my ($name) = @_;
    open my $file, '<:raw', "$folder/$name.json" or die "$folder/$name.json: $!";
    local $/ = undef;
    return JSON::PP->new->utf8->decode(scalar <$file>);
}

sub bytes { return pack 'H*', $_[0] }

subtest 'patterns' => sub {
    for my $entry (@{ vectors('patterns')->{matches} }) {
        my ($pattern, $channel) = @{$entry}{qw(pattern channel)};
        my $found = $channel =~ pattern_regex($pattern, $entry->{separator});
        is(!!$found, !!$entry->{matches}, "'$pattern' and '$channel' with $entry->{separator}");
    }
};

my $packets = vectors('sbus');

subtest 'packets' => sub {
    for my $entry (@{ $packets->{valid} }) {
        my ($name, $packet) = ($entry->{name}, bytes($entry->{packet}));
        if ($entry->{type} eq 'MSG') {
            my $message = { channel => $entry->{chan}, payload => bytes($entry->{payload}) };
            is_deeply(parse($packet), $message, $name);
            is("MSG $message->{channel}\0$message->{payload}", $packet, "$name, written") if $entry->{canonical};
        }
        elsif ($entry->{type} eq 'CMSG' && $entry->{canonical} && $packet =~ /\0/) {
            is_deeply(parse($packet), [ $entry->{key}, bytes($entry->{value}) ], $name);
        }
        elsif ($entry->{type} eq 'RECV') {
            my $message = parse($packet);
            is($message->{$_}, $entry->{$_}, "$name: $_") for qw(peer verdict);
            is($message->{time_ns}, $entry->{unix_ns}, "$name: time_ns");
            is($message->{datagram}, bytes($entry->{datagram}), "$name: datagram");
        }
        elsif ($entry->{type} eq 'PACK') {
            my @inside = map { bytes($_) } @{ $entry->{packets} };
            is_deeply(unpack_packets($packet), \@inside, $name);
            is(pack_packets(@inside), $packet, "$name, written");
        }
    }
    for my $entry (@{ $packets->{tapped} }) {
        my $message = parse(bytes($entry->{packet}));
        is($message->{$_}, $entry->{$_}, "$entry->{name}: $_") for qw(peer verdict interface);
        is($message->{datagram}, bytes($entry->{datagram}), "$entry->{name}: datagram");
    }
    for my $entry (@{ $packets->{invalid} }) {
        my $packet = bytes($entry->{packet});
        is(parse($packet), undef, $entry->{name}) if $entry->{name} =~ /\ARECV:/;
        next if $entry->{name} !~ /\APACK:/;
        my $inside = unpack_packets($packet);
        ok(!$inside || (grep { !defined parse($_) } @{$inside}), $entry->{name});
    }
};

subtest 'datagrams' => sub {
    for my $entry (@{ vectors('bccn1')->{valid} }) {
        my $datagram = bytes($entry->{datagram});
        my $message  = parse("RECV 10.0.0.7:5400 1760000000123456789 ok\0$datagram");
        my %expected = (
            channel => $entry->{chan},
            payload => bytes($entry->{payload}),
            src     => $entry->{src},
            seq     => $entry->{seq} + 0,
            peer    => '10.0.0.7:5400',
            time_ns => 1760000000123456789,
            verdict => 'ok',
            datagram => $datagram,
        );
        is_deeply($message, \%expected, $entry->{name});
    }
};

done_testing;
