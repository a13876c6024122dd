/** Streams that outlive their provider, through every door, and what else belongs to an answer: ways, guards, masks, tools. */
import t, { type Test } from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import type { GuardrailRules } from '../../src/protocol/management/guardrails.ts'
import { CLIENTS, type Loose, METADATA } from '../support/dialect-clients.ts'
import { finalOf, parseEventStream, type TestGateway, type TestGatewayOptions } from '../support/gateway.ts'
import { giveGuardrail } from '../support/guardrail.ts'
import { ScriptedProvider, type ScriptedReply } from '../support/provider.ts'
import { deltasIn, saidIn, startWorld } from '../support/world.ts'

const PRICING = { prompt: '0.000001', completion: '0.00001' }
const SLUGS = ['first', 'second', 'third', 'fourth'] as const
const MODEL = 'acme/m'
const WHOLE = 'The quick brown fox jumps over the lazy dog, and then it rests for a while.'
const ANN = 'ann@one.example'

interface Door {
  readonly name: string
  /** The text of the answer to these words of the user; throws if it has failed. */
  ask(to: TestGateway, words: string, more?: Loose): Promise<string>
}

const responses: Door = {
  name: 'responses',
  async ask(to, words, more = {}) {
    const reply = await to.respond(
      { model: MODEL, input: words, stream: true, ...more },
      { headers: METADATA },
    )
    const text = await reply.text()
    if (reply.status !== 200) throw new Error(text)
    const events = parseEventStream(text)
    const { status, error, ...response } = finalOf(events)
    if (status === 'failed') throw new Error(error?.message)
    // An item without text, such as that of a server tool, is an empty line.
    const said = saidIn(response).trim()
    // What came piece by piece is what the last event repeats.
    if (deltasIn(events) !== said) throw new Error(`${deltasIn(events)} is not ${said}`)
    return said
  },
}

const DOORS: readonly Door[] = [
  responses,
  ...CLIENTS.map(
    (client): Door => ({
      name: client.name,
      ask: async (to, words, more) =>
        client.textOf(
          await client.complete(to, { model: MODEL, ...client.conversation(words), stream: true, ...more }),
        ),
    }),
  ),
]

/** A gateway with four endpoints in this order, each of which says what its script has next. */
async function startWorldOf(t: Pick<Test, 'teardown'>, options: TestGatewayOptions = {}, row: Loose = {}) {
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  const world = await startWorld({
    continueStreams: true,
    routing: { loadBalancing: false, breakerFailures: null },
    ...options,
    providers: SLUGS.map(slug => ({
      slug,
      format: 'openai-chat',
      baseUrl,
      apiKey: 'k',
      continues: 'last-message',
      ...row,
    })),
    models: [
      {
        id: MODEL,
        endpoints: SLUGS.map(slug => ({ provider: slug, upstreamModel: slug, pricing: PRICING })),
      },
    ],
  } as never)
  t.teardown(async () => {
    await world.close()
    await provider.close()
  })
  return {
    ...world,
    /** @param replies of each endpoint; what was left of others is forgotten */
    script(...replies: readonly (readonly ScriptedReply[])[]): void {
      provider.requests.length = 0
      for (const [at, slug] of SLUGS.entries()) provider.script(slug, replies[at] ?? [])
    },
    /** The messages of each request so far. */
    messages: () => provider.requests.map(({ body }) => body['messages'] as readonly Loose[]),
    /** All that providers were sent. */
    sent: () => provider.requests.map(({ text }) => text).join('\n'),
  }
}

const broken = (text: string): ScriptedReply => ({ text, breaks: true })

t.test('through every door, a text goes on, and goes on again', async t => {
  const { gateway, script, messages, records } = await startWorldOf(t)
  for (const door of DOORS) {
    script(
      [broken('The quick brown fox ')],
      [broken('jumps over the ')],
      [{ text: 'lazy dog, and then it rests for a while.' }],
    )
    t.equal(await door.ask(gateway, 'Say it'), WHOLE, door.name)
    const said = messages().map(each => each.at(-1)?.['content'])
    t.match(said.slice(1), ['The quick brown fox', 'The quick brown fox jumps over the'], door.name)
    const [record] = await records()
    t.match(record, { outcome: 'completed' })
    t.ok((record?.cost ?? 0) > 0, `${door.name} pays for it`)
  }
})

t.test('through every door, one that breaks a third time has failed and costs nothing', async t => {
  const { gateway, script, messages, records } = await startWorldOf(t)
  for (const door of DOORS) {
    script([broken('The quick ')], [broken('brown ')], [broken('fox ')], [{ text: 'jumps' }])
    await t.rejects(door.ask(gateway, 'Say it'), Error, door.name)
    t.equal(messages().length, 3, 'the fourth endpoint is not asked')
    t.match((await records())[0], { outcome: 'failed', cost: 0 }, door.name)
  }
})

t.test('each way has its own last message', async t => {
  const asked = { role: 'assistant', content: 'The quick brown fox' }
  for (const [continues, last] of [
    ['last-message', [asked]],
    ['prefix', [{ ...asked, prefix: true }]],
    ['instruction', [asked, { role: 'user', content: /^Your answer was cut off\. Continue it/ }]],
  ] as const) {
    const options = { continueStreams: 'instruction' } as const
    const { gateway, script, messages } = await startWorldOf(t, options, { continues })
    for (const door of DOORS) {
      script(
        [broken('The quick brown fox ')],
        [{ text: 'jumps over the lazy dog, and then it rests for a while.' }],
      )
      t.equal(await door.ask(gateway, 'Say it'), WHOLE, `${continues} by ${door.name}`)
      const [first = [], second = []] = messages()
      t.match(second.slice(first.length), last, `${continues} by ${door.name}`)
      t.equal(second.length, first.length + last.length)
    }
  }
})

t.test('an endpoint that has to be told is not asked for the setting true', async t => {
  const { gateway, script, messages } = await startWorldOf(t, {}, { continues: 'instruction' })
  script([broken('The quick ')], [{ text: 'brown fox' }])
  await t.rejects(responses.ask(gateway, 'Say it'))
  t.equal(messages().length, 1)
})

async function guarded(
  { gateway, store }: Awaited<ReturnType<typeof startWorldOf>>,
  rules: Partial<GuardrailRules>,
) {
  const { organizationId } = await giveGuardrail(store, hashKey(gateway.apiKey), rules)
  gateway.serving.invalidate({ kind: 'guardrails', organizationId })
}

const output = (action: 'redact' | 'block') => ({
  contentFilterBuiltins: [],
  contentFilters: [{ pattern: 'fox jumps over', action, label: 'FOX' }],
  windowBytes: 1_024,
  overlapBytes: 256,
})

t.test('a rule for replies finds what begins in one part and ends in the next one', async t => {
  const world = await startWorldOf(t)
  await guarded(world, { output: output('redact') } as never)
  for (const door of DOORS) {
    world.script(
      [broken('The quick brown fox jum')],
      [{ text: 'ps over the lazy dog, and then it rests for a while.' }],
    )
    const said = await door.ask(world.gateway, 'Say it')
    t.notMatch(said, 'fox jumps over', door.name)
    t.match(said, / the lazy dog, and then it rests for a while\.$/, door.name)
  }
})

t.test('a rule for replies blocks the next part', async t => {
  const world = await startWorldOf(t)
  await guarded(world, { output: output('block') } as never)
  world.script([broken('The quick brown ')], [{ text: 'fox jumps over the lazy dog.' }])
  await t.rejects(responses.ask(world.gateway, 'Say it'))
})

t.test('masked values come back in both parts and over the cut, and no provider sees them', async t => {
  const world = await startWorldOf(t)
  await guarded(world, {
    contentFilterBuiltins: [{ slug: 'email', action: 'mask', scanScope: 'all_messages' }],
  })
  for (const door of DOORS) {
    for (const [part, rest] of [
      ['I write to [EMAIL_1] and ', 'then to [EMAIL_1] again.'],
      ['I write to [EMAIL_1] and then to [EMA', '[EMAIL_1] again.'],
      ['I write to [EMAIL_1] and then to [', '[EMAIL_1] again.'],
    ] as const) {
      // What was held back has not been said: the next endpoint is asked without it.
      world.script([broken(part)], [{ text: rest }])
      const said = await door.ask(world.gateway, `Say it to ${ANN}`)
      t.equal(said, `I write to ${ANN} and then to ${ANN} again.`, `${door.name} after ${part}`)
      t.match(world.messages()[1]?.at(-1), { role: 'assistant', content: /^I write to \[EMAIL_1\] and/ })
      t.notMatch(world.sent(), ANN, door.name)
    }
  }
})

t.test('the turn behind a server tool goes on with the result of the tool', async t => {
  const { gateway, script, messages, records } = await startWorldOf(t)
  const tools = [{ type: 'gateway:datetime', parameters: { timezone: 'Europe/Berlin' } }]
  script(
    [{ calls: [{ name: 'datetime', arguments: '{}' }] }, broken('The quick brown fox ')],
    [{ text: 'jumps over the lazy dog, and then it rests for a while.' }],
  )
  t.equal(await responses.ask(gateway, 'Say it', { tools }), WHOLE)
  const [, , third = []] = messages()
  t.match(third.map(({ role }) => role).slice(-3), ['assistant', 'tool', 'assistant'])
  t.match(third.at(-1), { content: 'The quick brown fox' })
  t.match(await records(), [{ outcome: 'completed' }])
})

t.test('a turn that breaks in its call of a server tool has failed', async t => {
  const { gateway, script, messages } = await startWorldOf(t)
  const tools = [{ type: 'gateway:datetime', parameters: { timezone: 'Europe/Berlin' } }]
  script(
    [{ text: 'I look. ', calls: [{ name: 'datetime', arguments: '{' }], breaks: true }],
    [{ text: 'never seen' }],
  )
  await t.rejects(responses.ask(gateway, 'Say it', { tools }))
  t.equal(messages().length, 1)
})
