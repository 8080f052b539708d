# A plain BCCN1 program: does in Perl, with its core modules, what plain.py does.
# usage: plain.pl BROADCAST PORT
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;

my ( $broadcast, $port ) = @ARGV;
my $sock = IO::Socket::INET->new( Proto => 'udp', LocalPort => $port, ReuseAddr => 1, Broadcast => 1 )
    or die "bind: $@";
my $to     = sockaddr_in( $port, inet_aton( $broadcast ) );
my $select = IO::Select->new( $sock, \*STDIN );
my $seq    = 0;
$| = 1;
print "ready\n";
while( 1 )
  {
  for my $ready ( $select->can_read() )
    {
    if( $ready == $sock )
      {
      $sock->recv( my $datagram, 2048 );
      print "$datagram\n";
      next;
      }
    sysread( STDIN, my $line, 4096 ) or exit;
    chomp $line;
    $line =~ s/ /|/;
    my $body = '?:' . ++$seq . ":$line";
    $sock->send( 'BCCN1[' . length( $body ) . "]$body", 0, $to );
    }
  }
