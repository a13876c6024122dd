import t from 'tap'
import type { Usage } from '../../../src/formats/format.ts'
import type { RouteCandidate } from '../../../src/pipeline/routing/candidate.ts'
import { type Affinity, Stickiness } from '../../../src/pipeline/routing/sticky.ts'
import { createCatalog } from '../../../src/providers/catalog.ts'
import { WorkspaceCredentials } from '../../../src/providers/credentials/catalog.ts'
import type { EndpointState } from '../../../src/providers/health/endpoint-state.ts'
import { EndpointHealth } from '../../../src/providers/health/health.ts'
import { createPins, type Pins } from '../../../src/storage/session-affinity/session-affinity.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { credentialOf } from '../../support/own-keys.ts'
import { route } from '../../support/ranking.ts'
import { TestClock } from '../../support/test-clock.ts'

const provider = (slug: string) => ({
  slug,
  format: 'openai-chat' as const,
  baseUrl: 'http://127.0.0.1:1',
  apiKey: 'k',
})
const CACHED = { prompt: '0.000002', inputCacheRead: '0.000001' }
const catalog = createCatalog({
  providers: ['a', 'b', 'c', 'd'].map(provider),
  models: [
    {
      id: 'm/one',
      endpoints: [
        { provider: 'a', pricing: CACHED },
        { provider: 'b', pricing: CACHED },
        { provider: 'c', pricing: { prompt: '0.000002', inputCacheRead: '0.000002' } },
        { provider: 'd' },
      ],
    },
    {
      id: 'm/two',
      endpoints: [
        { provider: 'b', pricing: CACHED },
        { provider: 'a', pricing: CACHED },
      ],
    },
    { id: 'm/alone', endpoints: [{ provider: 'a', pricing: CACHED }] },
    { id: 'm/dear', endpoints: [{ provider: 'c' }, { provider: 'd' }] },
  ],
})

const USAGE: Usage = {
  inputTokens: 10,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  outputTokens: 1,
  reasoningTokens: 0,
  webSearchRequests: 0,
}
const HIT: Usage = { ...USAGE, cachedTokens: 8 }

type Body = Record<string, unknown>

interface Turn {
  readonly found: Affinity
  /** Slugs in order; own keys by their id. */
  readonly order: string
  /** The candidate of this slug or id answered. */
  answers(name: string, usage?: Usage | null): void
}

function setup(pins?: Pins, ownKeys = new WorkspaceCredentials([])) {
  const clock = new TestClock()
  let asked = 0
  const kept = pins ?? createPins(clock)
  const counted: Pins = {
    get(key) {
      asked++
      return kept.get(key)
    },
    claim(key, pin, ttlMs, owner) {
      asked++
      return kept.claim(key, pin, ttlMs, owner)
    },
    set: (key, pin, ttlMs, owner) => kept.set(key, pin, ttlMs, owner),
  }
  const sticky = new Stickiness(counted)
  const name = ({ endpoint, credential }: RouteCandidate) => credential?.id ?? endpoint.provider.slug
  const turn = async (
    body: Body,
    organizationId = 'o',
    states: Readonly<Record<string, EndpointState>> = {},
  ): Promise<Turn> => {
    const request = parseResponsesRequest({ model: 'm/one', input: 'hi', ...body })
    const { candidates } = route(request, catalog, { ownKeys, keyHash: 'h', dataRegion: null })
    for (const candidate of candidates) {
      const state = states[candidate.endpoint.provider.slug]
      if (state !== undefined) candidate.state = state
    }
    const caller = { keyHash: 'a'.repeat(64), organizationId, workspaceId: null }
    const found = await sticky.order({ caller, request }, candidates, clock.monotonicMs())
    return {
      found,
      order: found.candidates.map(name).join(' '),
      answers(wanted, usage = USAGE) {
        const candidate = found.candidates.find(each => name(each) === wanted)
        if (candidate === undefined) throw new Error(`${wanted} is no candidate`)
        found.affinity?.noteSuccess(candidate, usage)
      },
    }
  }
  return { clock, turn, asked: () => asked }
}

t.test('a session stays where it was answered', async t => {
  const { turn } = setup()
  const first = await turn({ session_id: 's' })
  t.equal(first.order, 'a b c d')
  first.answers('b')
  t.equal((await turn({ session_id: 's', input: 'something else' })).order, 'b a c d')
  t.equal((await turn({ session_id: 'other' })).order, 'a b c d')
  t.equal((await turn({ session_id: 's', model: 'm/two' })).order, 'b a', 'another model has its own pin')
  t.equal((await turn({ session_id: 's' }, 'another organization')).order, 'a b c d')
})

t.test('a session stays whatever its cache costs, and so does a cache key', async t => {
  for (const named of [{ session_id: 's' }, { prompt_cache_key: 'k' }]) {
    const { turn } = setup()
    for (const slug of ['c', 'd']) {
      ;(await turn(named)).answers(slug)
      t.match((await turn(named)).order, new RegExp(`^${slug} `))
    }
    ;(await turn({ ...named, model: 'm/dear' })).answers('d')
    t.equal((await turn({ ...named, model: 'm/dear' })).order, 'd c')
  }
})

t.test('turns of one moment go to one endpoint, before the first of them has ended', async t => {
  const { turn } = setup()
  t.equal((await turn({ session_id: 's', provider: { ignore: ['a'] } })).order, 'b c d')
  t.equal((await turn({ session_id: 's' })).order, 'b a c d')
})

t.test(
  'what must not be asked now does not go first, and is pinned no more once another one has answered',
  async t => {
    const { turn, clock } = setup()
    ;(await turn({ session_id: 's' })).answers('b')
    const health = new EndpointHealth({ clock })
    const candidates = (await turn({ session_id: 's' })).found.candidates
    const b = candidates.find(({ endpoint }) => endpoint.provider.slug === 'b')
    if (b === undefined) throw new Error('b is a candidate')
    const state = health.of(b.endpoint, null)
    state.breakers.openAll(clock.monotonicMs(), 'failure')
    const broken = await turn({ session_id: 's' }, 'o', { b: state })
    t.equal(broken.order, 'a b c d')
    t.equal((await turn({ session_id: 's' })).order, 'b a c d', 'until then its pin stays')
    broken.answers('a')
    t.equal((await turn({ session_id: 's' })).order, 'a b c d')
  },
)

t.test('a pin is kept as long as the provider is asked to keep the prompt', async t => {
  const long = [
    { cache_control: { type: 'ephemeral', ttl: '1h' } },
    { prompt_cache_options: { mode: 'explicit', ttl: '1h' } },
    {
      input: [
        {
          role: 'user',
          content: [{ type: 'input_text', text: 'x', cache_control: { type: 'ephemeral', ttl: '1h' } }],
        },
      ],
    },
  ]
  for (const fields of long) {
    const { turn, clock } = setup()
    ;(await turn({ session_id: 's', ...fields })).answers('b')
    clock.advance(3_599_999)
    t.equal((await turn({ session_id: 's' })).order, 'b a c d')
    clock.advance(1)
    t.equal((await turn({ session_id: 's' })).order, 'a b c d')
  }
})

t.test('without a session it takes a cache hit', async t => {
  const { turn } = setup()
  ;(await turn({})).answers('b')
  t.equal((await turn({})).order, 'a b c d')
  ;(await turn({})).answers('b', null)
  t.equal((await turn({})).order, 'a b c d', 'and one that the provider told')
  ;(await turn({})).answers('b', HIT)
  t.equal((await turn({})).order, 'b a c d')
})

t.test('a conversation is told by cache key, or else by how it began', async t => {
  const { turn } = setup()
  const user = (content: unknown) => ({ role: 'user', content })
  const reply = { role: 'assistant', content: 'Yes.' }
  ;(await turn({ prompt_cache_key: 'k' })).answers('b', HIT)
  t.equal((await turn({ prompt_cache_key: 'k', input: 'else' })).order, 'b a c d')
  ;(await turn({ instructions: 'Be kind.', input: [user('one')] })).answers('b', HIT)
  const later = [user('one'), reply, user('more')]
  t.equal((await turn({ instructions: 'Be kind.', input: later })).order, 'b a c d')
  const asItem = [{ role: 'system', content: 'Be kind.' }, ...later]
  t.equal((await turn({ input: asItem })).order, 'b a c d', 'instructions are the system message')
  t.equal((await turn({ instructions: 'Be harsh.', input: later })).order, 'a b c d')
  t.equal((await turn({ instructions: 'Be kind.', input: [user('two'), reply] })).order, 'a b c d')
  const parts = [user([{ type: 'input_text', text: 'Look.' }])]
  ;(await turn({ input: parts })).answers('b', HIT)
  t.equal((await turn({ input: parts })).order, 'b a c d')
  t.equal((await turn({ input: [user([{ type: 'input_text', text: 'Hear.' }])] })).order, 'a b c d')
})

t.test('its opening messages pin it only where the cache is cheaper than the prompt', async t => {
  const { turn, asked } = setup()
  for (const slug of ['c', 'd']) {
    ;(await turn({})).answers(slug, HIT)
    t.equal((await turn({})).order, 'a b c d', slug)
  }
  const before = asked()
  t.equal((await turn({ model: 'm/dear' })).found.affinity, null)
  t.equal((await turn({ session_id: 's', model: 'm/alone' })).found.affinity, null)
  t.equal(asked(), before, 'nothing is looked up where there is no choice')
})

t.test('an order of the caller’s own stands', async t => {
  const { turn } = setup()
  ;(await turn({ session_id: 's' })).answers('b')
  t.equal((await turn({ session_id: 's', provider: { order: ['a'] } })).order, 'a b c d')
  t.equal((await turn({ session_id: 's', provider: { ignore: ['b'] } })).order, 'a c d', 'nor is one added')
})

t.test('ten idle minutes end it; each success begins them anew', async t => {
  const { turn, clock } = setup()
  ;(await turn({})).answers('b', HIT)
  clock.advance(599_999)
  ;(await turn({})).answers('b', USAGE)
  clock.advance(599_999)
  const held = await turn({})
  t.equal(held.order, 'b a c d', 'a success without a cache hit renews')
  held.answers('a', USAGE)
  t.equal((await turn({})).order, 'b a c d', 'one elsewhere without a cache hit moves nothing')
  clock.advance(1)
  t.equal((await turn({})).order, 'a b c d', 'and what only failed renews nothing')
})

t.test('a pin stays among its kind: own keys go first all the same', async t => {
  const ownKeys = new WorkspaceCredentials([
    credentialOf('a', { id: 'a1', sortOrder: 1 }),
    credentialOf('b', { id: 'b1', sortOrder: 1 }),
    credentialOf('b', { id: 'b2', sortOrder: 2 }),
    credentialOf('a', { id: 'a9', isFallback: true }),
    credentialOf('b', { id: 'b9', isFallback: true }),
  ])
  const { turn } = setup(undefined, ownKeys)
  const untouched = await turn({ session_id: 's' })
  t.equal(untouched.order, 'a1 b1 b2 a b c d a9 b9')
  untouched.answers('b')
  t.equal((await turn({ session_id: 's' })).order, 'a1 b1 b2 b a c d a9 b9')
  untouched.answers('b2')
  t.equal(
    (await turn({ session_id: 's' })).order,
    'b2 a1 b1 a b c d a9 b9',
    'the account counts, not the provider',
  )
  untouched.answers('b9')
  t.equal((await turn({ session_id: 's' })).order, 'a1 b1 b2 a b c d b9 a9')
})

t.test('pins may be kept elsewhere, and no prompt or name goes there', async t => {
  const kept = new Map<string, string>()
  const away: Pins = {
    get: async key => kept.get(key) ?? null,
    set: (key, pin) => void kept.set(key, pin),
    async claim(key, pin) {
      const found = kept.get(key)
      if (found === undefined) kept.set(key, pin)
      return found ?? pin
    },
  }
  const { turn } = setup(away)
  ;(await turn({ session_id: 'secret-name', input: 'secret-prompt' })).answers('b')
  t.equal((await turn({ session_id: 'secret-name' })).order, 'b a c d')
  t.equal(kept.size, 1)
  t.notMatch([...kept.keys()].join() + [...kept.values()].join(), 'secret')
})

t.test('a request that was not answered leaves no long pin, and one request not many', async t => {
  const clock = new TestClock()
  const pins = createPins(clock)
  const kept: number[] = []
  const spied: Pins = {
    get: key => pins.get(key),
    claim: (key, pin, ttlMs, owner) => {
      kept.push(ttlMs)
      return pins.claim(key, pin, ttlMs, owner)
    },
    set: (key, pin, ttlMs, owner) => pins.set(key, pin, ttlMs, owner),
  }
  const ids = Array.from({ length: 100 }, (_, at) => `m/${at}`)
  const endpoints = [{ provider: 'a' }, { provider: 'b' }]
  const many = createCatalog({
    providers: ['a', 'b'].map(provider),
    models: ids.map(id => ({ id, endpoints })),
  })
  const body = {
    models: ids,
    input: 'hi',
    session_id: 's',
    prompt_cache_options: { mode: 'explicit', ttl: '24h' },
  }
  const request = parseResponsesRequest(body)
  const { candidates } = route(request, many)
  await new Stickiness(spied).order(
    { caller: { keyHash: 'a'.repeat(64), organizationId: 'o', workspaceId: null }, request },
    candidates,
  )
  t.same(kept, Array(8).fill(600_000))
})

t.test('a key that pins more than there is room for loses its own pins', async t => {
  const pins = createPins(new TestClock(), 10)
  pins.set('mine', 'a', 60_000, 'key one')
  for (let at = 0; at < 100; at++) {
    pins.set(`set ${at}`, 'b', 60_000, 'key two')
    pins.claim(`claimed ${at}`, 'b', 60_000, 'key two')
  }
  t.equal(pins.get('mine'), 'a')
  t.equal(pins.get('claimed 99'), 'b')
  t.equal(pins.get('claimed 90'), null)
})

t.test('memory is bounded, and the oldest give way', async t => {
  const clock = new TestClock()
  const { turn } = setup(createPins(clock, 2))
  for (const session_id of ['1', '2', '3']) (await turn({ session_id })).answers('b')
  t.equal((await turn({ session_id: '1' })).order, 'a b c d')
  t.equal((await turn({ session_id: '3' })).order, 'b a c d')
})
