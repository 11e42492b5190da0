package engine

import (
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"

	"github.com/fairlead/fairlead/temporal-dev/internal/process"
)

// shards is fixed for the life of a database: the server keeps the number it was created with.
const shards = 4

// namespaceRefresh is how soon every service sees a new namespace or search attribute.
const namespaceRefresh = time.Second

// servicePorts are the gRPC ports of the four services; only the frontend's is known to people.
type servicePorts map[primitives.ServiceName]int

// hosts replaces gossip between the services: they all live in this process. So no membership ports are needed, and rows of
// a killed predecessor in cluster_membership delay nothing.
func (p servicePorts) hosts() map[primitives.ServiceName]static.Hosts {
	hosts := map[primitives.ServiceName]static.Hosts{}
	for service, port := range p {
		hosts[service] = static.SingleLocalHost(process.Address(port))
	}
	return hosts
}

func serverConfig(ports servicePorts, executions, visibility *config.SQL) *config.Config {
	services := map[string]config.Service{}
	for service, port := range ports {
		services[string(service)] = config.Service{RPC: config.RPC{GRPCPort: port, BindOnLocalHost: true}}
	}
	frontend := process.Address(ports[primitives.FrontendService])
	return &config.Config{
		Persistence: config.Persistence{
			DefaultStore: "executions", VisibilityStore: "visibility", NumHistoryShards: shards,
			DataStores: map[string]config.DataStore{"executions": {SQL: executions}, "visibility": {SQL: visibility}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10, MasterClusterName: "active", CurrentClusterName: "active",
			ClusterInformation: map[string]cluster.ClusterInformation{
				"active": {Enabled: true, InitialFailoverVersion: 1, RPCAddress: frontend},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            services,
		PublicClient:        config.PublicClient{HostPort: frontend},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: "disabled"},
			Visibility: config.VisibilityArchival{State: "disabled"},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
		}},
	}
}

// dynamicConfig holds what differs from a server's defaults, which are made for many tenants on many hosts.
func dynamicConfig() dynamicconfig.StaticClient {
	return dynamicconfig.StaticClient{
		// The default of 20 polls a second and shard makes each task wait up to 50 ms: an activity falls from 43 to 12 ms.
		dynamicconfig.TransferProcessorMaxPollRPS.Key():   1000,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():      1000,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key(): 200,
		// With one host, more partitions only add forwarding between them.
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,
		dynamicconfig.EnableActivityEagerExecution.Key():        true,

		// A load test on one machine shall meet the machine's limits, not rate limits.
		dynamicconfig.FrontendRPS.Key():                                                        100_000,
		dynamicconfig.FrontendMaxNamespaceRPSPerInstance.Key():                                 100_000,
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key():                       10_000,
		dynamicconfig.FrontendMaxConcurrentLongRunningRequestsPerInstance.Key():                20_000,
		dynamicconfig.FrontendNamespaceReplicationInducingAPIsRPS.Key():                        1000,
		dynamicconfig.FrontendMaxNamespaceNamespaceReplicationInducingAPIsRPSPerInstance.Key(): 1000,
		dynamicconfig.FrontendPersistenceMaxQPS.Key():                                          100_000,
		dynamicconfig.HistoryRPS.Key():                                                         100_000,
		dynamicconfig.HistoryPersistenceMaxQPS.Key():                                           100_000,
		dynamicconfig.MatchingRPS.Key():                                                        100_000,
		dynamicconfig.MatchingPersistenceMaxQPS.Key():                                          100_000,

		dynamicconfig.NamespaceCacheRefreshInterval.Key(): namespaceRefresh,
		// Nexus needs the HTTP API, which is not served here; left on it only warns.
		dynamicconfig.EnableNexus.Key(): false,
		// Asks a server of the vendor whether there is a newer version; a development machine tells nobody what it runs.
		dynamicconfig.EnableServerVersionCheck.Key(): false,
	}
}
