/** Guardrails of a measured gateway: what a careful operator would have on what goes in. */

const DETECTORS = [
  'email',
  'phone',
  'ssn',
  'credit-card',
  'ip-address',
  'secrets',
  'person-name',
  'address',
] as const

/** Twenty patterns of a company: its numbers, hosts and code names. None is in the load, which is the usual case. */
const PATTERNS = [
  ...['EMP', 'INV', 'CUST', 'TICKET', 'ORDER'].map(prefix => `\\b${prefix}-[0-9]{4,8}\\b`),
  ...['corp', 'internal', 'lab', 'prod', 'vpn'].map(host => `\\b[a-z0-9-]{1,40}\\.${host}\\.example\\b`),
  ...['aurora', 'basalt', 'cobalt', 'dynamo', 'ember'].map(name => `(?i)project[ -]${name}`),
  ...['DE', 'FR', 'NL', 'ES', 'IT'].map(
    country => `\\b${country}[0-9]{2}[ ]?(?:[0-9]{4}[ ]?){3,5}[0-9]{1,4}\\b`,
  ),
] as const

/** Flags: what was found is counted and reported, and nothing of the load is changed. */
const RULES = {
  content_filter_builtins: DETECTORS.map(slug => ({ slug, action: 'flag' })),
  content_filters: PATTERNS.map((pattern, index) => ({
    pattern,
    action: 'flag',
    label: `company ${index + 1}`,
  })),
}

/** Puts them on the default workspace. @throws Error when the gateway does not take them */
export async function setGuards(url: string, managementKey: string): Promise<void> {
  const headers = { authorization: `Bearer ${managementKey}`, 'content-type': 'application/json' }
  const listed = await fetch(`${url}/guardrails`, { headers })
  const { data } = (await listed.json()) as { data: { id: string; is_workspace_default: boolean }[] }
  const id = data.find(guardrail => guardrail.is_workspace_default)?.id
  const body = JSON.stringify(RULES)
  const answer = await fetch(`${url}/guardrails/${id}`, { method: 'PATCH', headers, body })
  if (answer.status !== 200)
    throw new Error(`guardrails were refused: ${answer.status} ${await answer.text()}`)
}
