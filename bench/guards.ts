/** Guardrails of a measured gateway: those that a careful operator would apply to input and to output. */

/** What may be looked for in replies. */
export const REPLY_DETECTORS = [
  'email',
  'phone',
  'ssn',
  'credit-card',
  'ip-address',
  'secrets',
  'person-name',
  'address',
] as const

/** All of them; prompt injection takes as long as the others together. */
export const DETECTORS = [...REPLY_DETECTORS, 'regex-prompt-injection'] as const

/** Twenty patterns of a company: its numbers, hosts and code names. None is in the load, which is the usual case. */
const PATTERNS = [
  ...['EMP', 'INV', 'CUST', 'TICKET', 'ORDER'].map(prefix => `\\b${prefix}-[0-9]{4,8}\\b`),
  ...['corp', 'internal', 'lab', 'prod', 'vpn'].map(host => `\\b[a-z0-9-]{1,40}\\.${host}\\.example\\b`),
  ...['aurora', 'basalt', 'cobalt', 'dynamo', 'ember'].map(name => `(?i)project[ -]${name}`),
  ...['DE', 'FR', 'NL', 'ES', 'IT'].map(
    country => `\\b${country}[0-9]{2}[ ]?(?:[0-9]{4}[ ]?){3,5}[0-9]{1,4}\\b`,
  ),
] as const

/** Eight patterns that careful users write themselves, most of them with endless repeats. */
const USUAL_PATTERNS = [
  '[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\\.[A-Za-z]{2,}',
  '-----BEGIN [A-Z ]*PRIVATE KEY-----',
  'password\\s*[:=]\\s*\\S+',
  '\\b[A-Z]{2}\\d{2}[ ]?(?:[A-Z0-9]{4}[ ]?){2,7}[A-Z0-9]{1,4}\\b',
  '\\b\\d{3}-\\d{2}-\\d{4}\\b',
  '\\bAKIA[0-9A-Z]{16}\\b',
  '(?i)bearer\\s+[a-z0-9._~+/-]+=*',
  '\\b(?:\\d[ -]?){13,16}\\b',
] as const

/** Windows of output in the measured gateway: the gateway's defaults, spelled since a target is told by them. */
export const OUTPUT_WINDOW = { windowBytes: 1024, overlapBytes: 256 } as const

/**
 * Reads to the end of the load's prompts for each of their sentences: some 60 ms of a worker for 10 kB, which a serve
 * thread takes in and sends on within one. Long prompts under quick rules would ask how long bodies are read instead:
 * 200 kB keep a worker busy for 8 ms, and the serve thread for 3.5 with guards or without.
 */
const SLOW_PATTERN = 'coffee(?:.*zebra)?'

const filtersOf = (patterns: readonly string[]) =>
  patterns.map((pattern, index) => ({ pattern, action: 'flag', label: `company ${index + 1}` }))

const flagging = (slugs: readonly string[]) => slugs.map(slug => ({ slug, action: 'flag' }))

/** Flags: what was found is counted and reported, and nothing of the load is changed. */
const RULES = {
  content_filter_builtins: flagging(DETECTORS),
  content_filters: filtersOf(PATTERNS),
}

/** One management call. @throws Error when the gateway does not take it */
async function manage(
  url: string,
  managementKey: string,
  method: 'GET' | 'POST' | 'PATCH',
  body?: object,
): Promise<unknown> {
  const headers = { authorization: `Bearer ${managementKey}`, 'content-type': 'application/json' }
  const sent = body === undefined ? {} : { body: JSON.stringify(body) }
  const answer = await fetch(url, { method, headers, ...sent })
  if (!answer.ok) throw new Error(`guardrails were refused: ${answer.status} ${await answer.text()}`)
  return await answer.json()
}

/** Puts rules on the default workspace. */
async function setDefault(url: string, managementKey: string, rules: object): Promise<void> {
  const listed = await manage(`${url}/guardrails`, managementKey, 'GET')
  const { data } = listed as { data: { id: string; is_workspace_default: boolean }[] }
  const id = data.find(guardrail => guardrail.is_workspace_default)?.id
  await manage(`${url}/guardrails/${id}`, managementKey, 'PATCH', rules)
}

/** Everybody's requests are looked at. @throws Error when the gateway does not take the rules */
export function setGuards(url: string, managementKey: string): Promise<void> {
  return setDefault(url, managementKey, RULES)
}

/** Everybody's requests are looked at with usual patterns alone. @throws Error when the gateway does not take them */
export function setPatterns(url: string, managementKey: string): Promise<void> {
  return setDefault(url, managementKey, { content_filters: filtersOf(USUAL_PATTERNS) })
}

/** The same with those of a company. @throws Error when the gateway does not take the rules */
export function setManyPatterns(url: string, managementKey: string): Promise<void> {
  return setDefault(url, managementKey, { content_filters: filtersOf([...USUAL_PATTERNS, ...PATTERNS]) })
}

/** Everybody's replies are looked at, in windows. @throws Error when the gateway does not take the rules */
export function setWindows(url: string, managementKey: string): Promise<void> {
  const { windowBytes, overlapBytes } = OUTPUT_WINDOW
  const output = {
    ...RULES,
    content_filter_builtins: flagging(REPLY_DETECTORS),
    window_bytes: windowBytes,
    overlap_bytes: overlapBytes,
  }
  return setDefault(url, managementKey, { output })
}

/**
 * Requests of one key are looked at, those of all others are not; gives that key. Its rules keep a worker busy with few
 * requests. What cannot be looked at is refused, so that every answer means that the work was done.
 * @throws Error when the gateway does not take the rules
 */
export function setGuardedKey(url: string, managementKey: string): Promise<string> {
  return createGuardedKey(url, managementKey, {
    ...RULES,
    content_filters: [...RULES.content_filters, { pattern: SLOW_PATTERN, action: 'flag', label: 'slow' }],
  })
}

/** A key whose requests alone are under these rules. @throws Error when the gateway does not take them */
export async function createGuardedKey(url: string, managementKey: string, rules: object): Promise<string> {
  const answer = await manage(`${url}/keys`, managementKey, 'POST', { name: 'guarded' })
  const { key, data } = answer as { key: string; data: { hash: string } }
  const body = { name: 'guarded', fail_mode: 'closed', ...rules }
  const guardrail = await manage(`${url}/guardrails`, managementKey, 'POST', body)
  const { id } = (guardrail as { data: { id: string } }).data
  const assignment = { key_hashes: [data.hash] }
  await manage(`${url}/guardrails/${id}/assignments/keys`, managementKey, 'POST', assignment)
  return key
}
