# The examples of docs/FENCING.md do what they say.
# Proves: I3 (in the database and with guardians outside)

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $file = "$FindBin::RealBin/../../docs/FENCING.md";
die "there is no $file (make installcheck puts it there)\n" unless -e $file;
my $node = lease_cluster('docs');
my $dir = PostgreSQL::Test::Utils::tempdir();
@ENV{qw(PGHOST PGPORT PGDATABASE)} = ($node->host, $node->port, 'postgres');

# Each ```sql or ```bash block, with the block right after it: what it shows.
my $text = PostgreSQL::Test::Utils::slurp_file($file);
my $examples = 0;
while ($text =~ /^```(sql|bash)\n(.*?)^```\n(?:^```\n(.*?)^```\n)?/msg)
{
	my ($language, $code, $expected) = ($1, $2, $3 // '');
	my ($first) = $code =~ /\A(.*)/;
	my $shown = '';
	my @command = $language eq 'sql' ? ($node->installed_command('psql'), '-Xq', '-f', '-') : ('bash', '-eu');

	# the messages in their place among the rows
	IPC::Run::run(\@command, '<', \$code, '>&', \$shown, init => sub { chdir $dir or die });
	$shown =~ s/^psql:<stdin>:\d+: //mg;
	is($shown, $expected, "example: $first");
	$examples++;
}
cmp_ok($examples, '>=', 7, 'examples were found');
$node->stop;

done_testing();
