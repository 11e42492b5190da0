package engine

import (
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	"go.temporal.io/server/tools/common/schema"
	toolsql "go.temporal.io/server/tools/sql"
)

// The two databases that the Temporal server keeps beside fairlead's own.
const (
	executionsDB = "temporal"
	visibilityDB = "temporal_visibility"
)

// sqlConfig is the address in DATABASE_URL in the Temporal server's own words, for another database on the same server.
func sqlConfig(databaseURL, database string, maxConns int) (*config.SQL, error) {
	u, err := url.Parse(databaseURL)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return nil, fmt.Errorf("DATABASE_URL must look like postgres://user:password@host:port/database")
	}
	// pgx also knows what the URL leaves out: PGPASSWORD, .pgpass, the default user.
	parsed, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	attributes := map[string]string{}
	for key, values := range u.Query() {
		attributes[key] = values[0]
	}
	if attributes["sslmode"] == "" {
		// The server's default is "disable"; every other client of this URL uses "prefer".
		attributes["sslmode"] = "prefer"
	}
	return &config.SQL{
		PluginName: postgresql.PluginNamePGX, DatabaseName: database, ConnectAddr: u.Host, ConnectProtocol: "tcp",
		User: url.User(parsed.User).String(), Password: parsed.Password, ConnectAttributes: attributes,
		MaxConns: maxConns, MaxIdleConns: maxConns, MaxConnLifetime: time.Hour,
	}, nil
}

// migrate brings one database to the schema of this server version. It may be repeated, also after a kill half-way.
//
// These are the tasks behind temporal-sql-tool, called without its command line because that ends the process on an error.
func migrate(cfg *config.SQL, schemaName string, logger log.Logger) error {
	conn, err := toolsql.NewConnection(cfg, logger)
	if err != nil {
		return fmt.Errorf("connect to database %s: %w", cfg.DatabaseName, err)
	}
	defer conn.Close()
	if err := schema.NewSetupSchemaTask(conn, &schema.SetupConfig{InitialVersion: "0.0"}, logger).Run(); err != nil {
		return fmt.Errorf("prepare database %s: %w", cfg.DatabaseName, err)
	}
	if err := schema.NewUpdateSchemaTask(conn, &schema.UpdateConfig{DBName: cfg.DatabaseName, SchemaName: schemaName}, logger).Run(); err != nil {
		return fmt.Errorf("migrate database %s: %w", cfg.DatabaseName, err)
	}
	return nil
}
