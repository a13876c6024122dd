/**
 * The Redis side of the counters, in Lua because each step has to be atomic. A counter is a hash: field `s` is the used
 * amount, and one field per node its reserved amount. A node whose heartbeat has expired is dead; its reservations are
 * dropped, and the ledger has its spending. One Redis, not a cluster: a step touches several keys.
 */

/** Reads a counter into `used`, `reserved` (by others) and `own`; drops the reservations of dead nodes. */
const READ = `
local function read(key, node, alive)
  local fields = redis.call('HGETALL', key)
  local used, reserved, own, died = nil, 0, 0, false
  for at = 1, #fields, 2 do
    local name, amount = fields[at], tonumber(fields[at + 1])
    if name == 's' then used = amount
    elseif name == node then own = amount
    elseif redis.call('EXISTS', alive .. name) == 1 then reserved = reserved + amount
    else redis.call('HDEL', key, name); died = true end
  end
  return used, reserved, own, died
end
local function whole(number) return string.format('%.0f', number) end
`

/**
 * KEYS counters; ARGV node, prefix of the heartbeats, then for each counter amount, ceiling, milliseconds to keep it,
 * and 1 when it begins with the ledger. Returns 0 when all was taken, the number of the counter that did not fit, or -1
 * when counters have to be aligned with the ledger first; then for each counter its total, -1 for those to align.
 */
export const TAKE = `${READ}
local node, alive = ARGV[1], ARGV[2]
local totals, unsure, refused = {}, false, 0
for i, key in ipairs(KEYS) do
  local at = 2 + (i - 1) * 4
  local used, reserved, own, died = read(key, node, alive)
  if ARGV[at + 4] == '1' and (used == nil or died) then
    unsure = true
    totals[i] = -1
  else
    totals[i] = (used or 0) + reserved + own
    if refused == 0 and totals[i] + tonumber(ARGV[at + 1]) > tonumber(ARGV[at + 2]) then refused = i end
  end
end
if unsure then return { -1, unpack(totals) } end
if refused > 0 then return { refused, unpack(totals) } end
for i, key in ipairs(KEYS) do
  local at = 2 + (i - 1) * 4
  redis.call('HINCRBY', key, node, ARGV[at + 1])
  redis.call('PEXPIRE', key, ARGV[at + 3])
  totals[i] = totals[i] + tonumber(ARGV[at + 1])
end
return { 0, unpack(totals) }`

/** KEYS counters; ARGV node, then for each counter the taken amount and the used part of it. */
export const GIVE = `${READ}
for i, key in ipairs(KEYS) do
  if redis.call('EXISTS', key) == 1 then
    local left = tonumber(redis.call('HGET', key, ARGV[1]) or '0') - tonumber(ARGV[i * 2])
    if left > 0 then redis.call('HSET', key, ARGV[1], whole(left)) end
    redis.call('HINCRBY', key, 's', ARGV[i * 2 + 1])
    if left <= 0 then redis.call('HDEL', key, ARGV[1]) end
  end
end
return 0`

/**
 * KEYS one counter; ARGV node, prefix of the heartbeats, spending in the ledger, reserved amount of the node (-1: keep
 * the one in Redis), milliseconds to keep it. Returns the total. It is at least the spending in the ledger; a record of
 * the ledger may also still be reserved.
 */
export const ALIGN = `${READ}
local key, spent, own = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local used, reserved, kept = read(key, ARGV[1], ARGV[2])
if own < 0 then own = kept end
if used == nil then used = spent
elseif used + reserved + own < spent then used = spent - reserved - own end
redis.call('HSET', key, 's', whole(used))
if own > 0 then redis.call('HSET', key, ARGV[1], whole(own)) else redis.call('HDEL', key, ARGV[1]) end
redis.call('PEXPIRE', key, ARGV[5])
return used + reserved + own`
