#include "route/options.h"

namespace sluice::route {

void RouteOptions::declare(OptionSet& options) {
  options.add(replicas, "replica", "address of a server, as http://HOST:PORT; repeated").shown_as("URL");
  options.add(host, "host", "address to listen on").shown_as("ADDRESS");
  options.add(port, "port", "port to listen on; 0: any free one, which is printed").within(0, 65535);
  options
      .add(replica_key_file, "replica-key-file",
           "file whose first line is a key of the replicas, to ask them what they hold; clients' keys are "
           "passed on")
      .shown_as("FILE");
  options.add(allowed_hosts, "allowed-host", "further name that Host may hold; may be repeated, '*': any")
      .shown_as("NAME");
  options
      .add(max_running, "max-running", "requests of one replica at once; more wait here, and keys take turns")
      .within(1, 1'000'000);
  options.add(max_body, "max-body", "bytes of a request's body").within(1024, 1 << 30);
  options.add(poll_interval, "poll-interval", "seconds between two reports of a replica").within(0.01, 60);
  options.add(connect_timeout, "connect-timeout", "seconds in which a replica must take a connection")
      .within(0.01, 60);
  options.add(header_timeout, "header-timeout", "seconds in which a request must come").within(0.1, 3600);
  options.add(idle_timeout, "idle-timeout", "seconds a connection may be idle between requests")
      .within(0.1, 86400);
  options.add(shutdown_timeout, "shutdown-timeout", "seconds that running requests get on SIGTERM")
      .within(0, 86400);
}

}  // namespace sluice::route
