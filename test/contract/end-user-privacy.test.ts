/**
 * End users towards providers: what a caller names its user with stays here, in whatever format the provider speaks.
 * Providers get a keyed hash or nothing; the usage record and what is summed from it keep the name itself.
 */
import { createHash } from 'node:crypto'
import t from 'tap'
import { SIM_FORMATS, simModel } from '../../src/apps/simulator/rows.ts'
import type { SimRequest } from '../../src/apps/simulator/simulator.ts'
import { startGateway } from '../support/gateway.ts'
import { addOrganization, caller } from '../support/management.ts'
import { TestClock } from '../support/test-clock.ts'

const clock = new TestClock()
const gateway = await startGateway({ clock })
t.teardown(() => gateway.close())
const other = await addOrganization(gateway.storageUrl, 'org_other')
const DAY_MS = 86_400_000

/** Marked, so that a piece of it is found wherever it may be; and hard to write in JSON, URLs and headers. */
const USER = 'canary-u5er/"Ä😀\\%2F?jane.doe@example.com'
const SAFETY = 'canary-5afety/"Ö\\jane.doe@example.com'
/** What the hash looks like: 43 characters of base64url. */
const HASH = /^[A-Za-z0-9_-]{43}$/

/** Where each format has a place for an end user; null: nowhere. */
const PLACES: Readonly<Record<(typeof SIM_FORMATS)[number], ((body: SimRequest['body']) => unknown) | null>> =
  {
    'openai-responses': body => body['safety_identifier'],
    'openai-chat': body => body['user'],
    'anthropic-messages': body => (body['metadata'] as { user_id?: unknown } | undefined)?.user_id,
    'google-gemini': null,
  }

/** Asks and returns what the provider got, with the generation id of the answer. */
async function ask(format: (typeof SIM_FORMATS)[number], fields: object, apiKey = gateway.apiKey) {
  const { requests } = gateway.sim.state
  const answer = await gateway.respond(
    { model: simModel('echo', format).id, input: 'Hello', ...fields },
    { headers: { authorization: `Bearer ${apiKey}` } },
  )
  const text = await answer.text()
  if (answer.status !== 200) throw new Error(`${answer.status}: ${text}`)
  const received = gateway.sim.requests.filter(({ number }) => number > requests)
  const [first] = received
  if (first === undefined || received.length !== 1) throw new Error(`${received.length} requests upstream`)
  return { received: first, id: answer.headers.get('x-generation-id') ?? '' }
}

/** Every text of a value, keys included. */
function texts(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([key, each]) => [key, ...texts(each)])
}

/** Ways in which a string may be written so that whoever reads it has it back, or can guess at it. */
function spellings(text: string): string[] {
  return [
    text,
    encodeURIComponent(text),
    Buffer.from(text).toString('base64'),
    Buffer.from(text).toString('base64url'),
    Buffer.from(text).toString('hex'),
    ...['sha256', 'sha1', 'md5'].flatMap(name =>
      (['hex', 'base64', 'base64url'] as const).map(form => createHash(name).update(text).digest(form)),
    ),
    // A piece is a leak as well.
    'canary-',
    'jane.doe',
  ]
}

for (const format of SIM_FORMATS) {
  const place = PLACES[format]
  for (const stream of [false, true]) {
    const kind = `${format}, ${stream ? 'streamed' : 'whole'}`
    t.test(`${kind}: the provider gets no spelling of either string`, async t => {
      const { received } = await ask(format, {
        stream,
        user: USER,
        safety_identifier: SAFETY,
        debug: { echo_upstream_body: true },
      })
      const seen = texts([received.path, received.headers, received.body])
      for (const spelling of [...spellings(USER), ...spellings(SAFETY)]) {
        t.same(
          seen.filter(text => text.toLowerCase().includes(spelling.toLowerCase())),
          [],
        )
      }
      if (place !== null) t.match(place(received.body), HASH, 'but a hash of it')
    })
  }

  t.test(`${format}: the hash is one user's, of one organization`, async t => {
    const named = async (fields: object, apiKey?: string) =>
      place?.((await ask(format, fields, apiKey)).received.body)
    const hash = await named({ user: USER })
    t.equal(await named({ user: USER, stream: true }), hash, 'the same again')
    t.equal(await named({}), undefined, 'nothing for nobody')
    t.equal(await named({ safety_identifier: null }), undefined)
    if (place === null) {
      t.equal(hash, undefined, 'this format has no place for it')
      return
    }
    t.equal(await named({ safety_identifier: USER }), hash, 'whichever field names it')
    t.equal(
      await named({ user: 'somebody', safety_identifier: USER }),
      hash,
      'and the safety identifier wins',
    )
    t.not(await named({ user: USER.toUpperCase() }), hash, 'case matters')
    t.not(await named({ user: USER }, other.apiKey), hash, 'organizations cannot be linked')
  })

  t.test(`${format}: what was used is attributed to the user by name`, async t => {
    const user = `${USER} ${format}`
    const { id } = await ask(format, { user })
    const manage = caller(gateway.url, gateway.managementKey)
    const { data } = await manage('GET', `/generation?id=${id}`)
    t.equal(data['external_user'], user)
    await gateway.shipper.ship()
    // Only whole days are listed.
    clock.advance(DAY_MS)
    const activity = (name: string, key = gateway.managementKey) =>
      caller(gateway.url, key)('GET', `/activity?user_id=${encodeURIComponent(name)}`)
    const rows = (await activity(user)).list
    t.equal(rows.length, 1)
    t.match(rows[0], {
      requests: 1,
      model: simModel('echo', format).id,
      prompt_tokens: data['tokens_prompt'],
      completion_tokens: data['tokens_completion'],
      usage: data['total_cost'],
    })
    t.same((await activity(`${user} `)).list, [], 'to that one exactly')
    t.same((await activity(user, other.managementKey)).list, [], 'within the organization')
  })
}

t.test('a string that is too long is refused before anybody is asked', async t => {
  const { requests } = gateway.sim.state
  t.equal((await gateway.respond({ model: 'sim/echo', input: 'x', user: 'a'.repeat(257) })).status, 400)
  t.equal(gateway.sim.state.requests, requests)
})

t.test('the log has no trace of it', async t => {
  t.ok(gateway.lines.length > 0)
  for (const piece of ['canary-', 'jane.doe']) t.notMatch(JSON.stringify(gateway.lines), piece)
})
