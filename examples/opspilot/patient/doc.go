// Package patient is the service that the OpsPilot demo examines: a small
// payment-api that takes real requests, talks to a bank over real connections,
// writes real logs and, with Config.Leak, really breaks.
//
// Its fault is a classic: when the bank does not answer in time, the connection
// is not given back to the pool. After as many such payments as the pool has
// connections, every payment fails, and goes on failing when the bank has long
// recovered. Only a restart helps, or mending the leak.
//
// Serve runs the service in this process. Supervise owns a service process and
// restarts it when it is asked to, as an init system would. Start runs the
// payment-api program under such a supervisor and waits until it is really
// broken (or really well).
package patient
