package db

import (
	"math"
	"time"

	"github.com/fairlead/fairlead/db/internal/dbsqlc"
)

// Limits bound a tenant and each of its users. Nil is no limit, zero allows
// nothing.
type Limits struct {
	// MaxRunning and MaxRunningPerUser count runs that hold a slot.
	MaxRunning        *int64
	MaxRunningPerUser *int64
	// The daily limits count from midnight UTC, reservations included.
	DailyTokens         *int64
	DailyCostMicros     *int64
	UserDailyTokens     *int64
	UserDailyCostMicros *int64
}

// Or returns l with the limits that it leaves open taken from defaults.
func (l Limits) Or(defaults Limits) Limits {
	for _, pair := range []struct{ mine, theirs **int64 }{
		{&l.MaxRunning, &defaults.MaxRunning},
		{&l.MaxRunningPerUser, &defaults.MaxRunningPerUser},
		{&l.DailyTokens, &defaults.DailyTokens},
		{&l.DailyCostMicros, &defaults.DailyCostMicros},
		{&l.UserDailyTokens, &defaults.UserDailyTokens},
		{&l.UserDailyCostMicros, &defaults.UserDailyCostMicros},
	} {
		if *pair.mine == nil {
			*pair.mine = *pair.theirs
		}
	}
	return l
}

// Exhausted returns a *LimitError for the first daily limit that leaves no room
// at all, or nil.
func (l Limits) Exhausted(used DailyUsage) *LimitError {
	for _, check := range []struct {
		name  string
		used  int64
		limit *int64
	}{
		{LimitTenantTokens, used.Tenant.Tokens, l.DailyTokens},
		{LimitTenantCost, used.Tenant.CostMicros, l.DailyCostMicros},
		{LimitUserTokens, used.User.Tokens, l.UserDailyTokens},
		{LimitUserCost, used.User.CostMicros, l.UserDailyCostMicros},
	} {
		if check.limit != nil && check.used >= *check.limit {
			return &LimitError{Limit: check.name}
		}
	}
	return nil
}

// DailyUsage is what was consumed or reserved on one day.
type DailyUsage struct {
	Tenant, User struct{ Tokens, CostMicros int64 }
}

// Day returns the day, in UTC, to which usage at t is charged.
func Day(t time.Time) time.Time {
	y, m, d := t.UTC().Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// ReserveDaily queues the addition of an amount to the day's usage. Over a
// limit the transaction fails with a *LimitError. The rows are the busiest of
// all: queue this last.
func (tx *Tx) ReserveDaily(day time.Time, amount Amount, limits Limits) {
	tx.write(exec(tx.q.ReserveDaily, dbsqlc.ReserveDailyParams{
		Tenant: tx.scope.Tenant, UserID: tx.scope.User, Day: day,
		Tokens: amount.Tokens, CostMicros: present(amount.CostMicros),
		TenantTokens: limits.DailyTokens, TenantCostMicros: limits.DailyCostMicros,
		UserTokens: limits.UserDailyTokens, UserCostMicros: limits.UserDailyCostMicros,
	}))
}

// SettleDaily queues the correction of a reservation made on day to what was
// billed. No limit refuses it: it has been spent. Queue this last.
func (tx *Tx) SettleDaily(day time.Time, reserved, billed Amount) {
	tokens := billed.Tokens - reserved.Tokens
	cost := present(billed.CostMicros) - present(reserved.CostMicros)
	if tokens == 0 && cost == 0 {
		return
	}
	// Tenant first, as ReserveDaily does.
	for _, user := range []string{"", tx.scope.User} {
		tx.write(exec(tx.q.SettleDaily, dbsqlc.SettleDailyParams{
			Tenant: tx.scope.Tenant, Day: day, UserID: user, Tokens: tokens, CostMicros: cost,
		}))
	}
}

func toLimits(rows []dbsqlc.GetTenantLimitRow) Limits {
	if len(rows) == 0 {
		return Limits{}
	}
	row := rows[0]
	return Limits{
		MaxRunning: widen(row.MaxRunning), MaxRunningPerUser: widen(row.MaxRunningPerUser),
		DailyTokens: row.DailyTokens, DailyCostMicros: row.DailyCostMicros,
		UserDailyTokens: row.UserDailyTokens, UserDailyCostMicros: row.UserDailyCostMicros,
	}
}

func toDailyUsage(rows []dbsqlc.GetDailyUsageRow) (used DailyUsage) {
	for _, row := range rows {
		into := &used.User
		if row.UserID == "" {
			into = &used.Tenant
		}
		into.Tokens, into.CostMicros = row.Tokens, row.CostMicros
	}
	return used
}

func widen(p *int32) *int64 {
	if p == nil {
		return nil
	}
	v := int64(*p)
	return &v
}

func orUnlimited(p *int64) int64 {
	if p == nil {
		return math.MaxInt64
	}
	return *p
}
