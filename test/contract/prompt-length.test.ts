/**
 * Prompts that are too long for an endpoint, for a model or for all: who is asked, what is cut, and how the caller
 * learns of it. At three doors, streamed and whole.
 */
import t, { type Test } from 'tap'
import type { FormatName } from '../../src/protocol/provider.ts'
import { startGateway } from '../support/gateway.ts'
import { ScriptedProvider } from '../support/provider.ts'
import { openSocket } from '../support/response-socket-client.ts'

type Fields = Readonly<Record<string, unknown>>

const PRICES = { prompt: '0.000003', completion: '0.00001' }
const DEAR = { prompt: '0.00001', completion: '0.00003' }

async function start(t: Test) {
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  const row = (slug: string, format: FormatName = 'openai-chat') => ({ slug, format, baseUrl, apiKey: 'k' })
  const endpoint = (size: string, contextLength: number, pricing: object = PRICES) =>
    ({ provider: size, upstreamModel: size, contextLength, pricing }) as const
  const large = endpoint('large', 100_000)
  const small = endpoint('small', 8_000, DEAR)
  const tiny = endpoint('tiny', 1_000, DEAR)
  const gateway = await startGateway({
    providers: [
      row('large'),
      row('small'),
      row('tiny'),
      row('own', 'openai-responses'),
      row('anthropic', 'anthropic-messages'),
    ],
    models: [
      { id: 'm/all', endpoints: [small, tiny, large] },
      { id: 'm/large', endpoints: [large] },
      { id: 'm/small', endpoints: [small] },
      { id: 'm/tiny', endpoints: [tiny] },
      { id: 'm/own', endpoints: [endpoint('own', 8_000)] },
      { id: 'm/claude', endpoints: [{ provider: 'anthropic', upstreamModel: 'claude' }] },
    ],
  })
  t.teardown(async () => {
    await gateway.close()
    await provider.close()
  })
  const ask = async (door: Door, fields: Fields, input: unknown = 'hi') => {
    provider.asked.length = 0
    for (const size of ['large', 'small', 'tiny']) provider.script(size, [{ text: 'Fine' }])
    const answer = await fetch(gateway.url + door.path, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${gateway.apiKey}`,
        'content-type': 'application/json',
        'x-gateway-metadata': 'enabled',
      },
      body: JSON.stringify({ ...door.body(input), ...fields }),
    })
    const text = await answer.text()
    const { model } = (provider.asked[0]?.body ?? {}) as { model?: string }
    const sent = JSON.stringify(provider.asked[0]?.body ?? '')
    return {
      status: answer.status,
      text,
      model,
      sent,
      asked: provider.asked.length,
      removed: answer.headers.get('x-gateway-compressed'),
      isTold: text.includes('"type":"context_compression"'),
    }
  }
  return { ask, provider, gateway }
}

interface Door {
  readonly path: string
  readonly body: (input: unknown) => Fields
}

const RESPONSES: Door = { path: '/responses', body: input => ({ input }) }
const DOORS: readonly Door[] = [
  RESPONSES,
  { path: '/chat/completions', body: content => ({ messages: [{ role: 'user', content }] }) },
  {
    path: '/messages',
    body: content => ({ max_tokens: 100, messages: [{ role: 'user', content }] }),
  },
]

/** A prompt of so many kilobytes, about a quarter of them tokens. */
const prompt = (kilobytes: number): string => `first ${'word '.repeat(kilobytes * 205)}last`
const OFF = { plugins: [{ id: 'context-compression', enabled: false }] }
const ON = { plugins: [{ id: 'context-compression' }] }

t.test('an endpoint that is too small is left out while another one fits', async t => {
  const { ask } = await start(t)
  for (const door of DOORS) {
    for (const stream of [false, true]) {
      for (const [kilobytes, model] of [
        [36, 'm/all'],
        [300, 'm/all'],
        [300, 'm/small,m/large'],
        [300, 'm/large,m/tiny'],
      ] as const) {
        const names = model.split(',')
        const named = names.length === 1 ? { model } : { models: names }
        for (const more of [{}, OFF, { provider: { order: ['tiny', 'small'] } }]) {
          const told = await ask(door, { ...named, ...more, stream }, prompt(kilobytes))
          const label = `${door.path} ${kilobytes} KB ${model} ${JSON.stringify(more)}`
          t.equal(told.status, 200, label)
          t.equal(told.model, 'large', label)
          t.ok(told.sent.length > kilobytes * 1_000, `${label}: whole`)
          t.equal(told.removed, null)
          t.notOk(told.isTold)
        }
      }
    }
  }
})

t.test('a prompt that no endpoint takes by half is refused, and nobody is asked', async t => {
  const { ask } = await start(t)
  for (const door of DOORS) {
    for (const [kilobytes, named] of [
      [700, { model: 'm/all' }],
      [2_000, { model: 'm/all' }],
      [2_000, { models: ['m/large', 'm/small'] }],
      [80, { model: 'm/small' }],
      [28, { model: 'm/tiny' }],
    ] as const) {
      for (const more of [{}, OFF]) {
        const told = await ask(door, { ...named, ...more }, prompt(kilobytes))
        t.equal(told.status, 400, `${door.path} ${kilobytes} KB ${JSON.stringify(named)}`)
        t.match(told.text, 'context_length_exceeded')
        t.equal(told.asked, 0)
        const streamed = await ask(door, { ...named, ...more, stream: true }, prompt(kilobytes))
        if (door === RESPONSES) {
          t.equal(streamed.status, 200)
          const events = [...streamed.text.matchAll(/^event: (\S+)/gm)].map(([, type]) => type)
          t.same(events, ['response.created', 'response.in_progress', 'response.failed'])
          t.match(streamed.text, '"error":{"code":"context_length_exceeded"')
          t.match(streamed.text, /data: \[DONE\]\s*$/)
        } else t.equal(streamed.status, 400)
        t.equal(streamed.asked, 0)
      }
    }
  }
})

t.test(
  'where no endpoint fits, a small one gets at least half of the prompt, and the caller is told',
  async t => {
    const { ask } = await start(t)
    for (const door of DOORS) {
      for (const stream of [false, true]) {
        const told = await ask(door, { model: 'm/small', stream }, prompt(44))
        t.equal(told.status, 200, door.path)
        t.ok(told.sent.length > 22_000 && told.sent.length < 32_000, `${told.sent.length} bytes left`)
        t.ok(Number(told.removed) > 3_000 && Number(told.removed) < 5_600, `${told.removed} removed`)
        t.ok(told.isTold)
      }
      const off = await ask(door, { model: 'm/small', ...OFF }, prompt(44))
      t.equal(off.status, 400)
    }
    const middle = { type: 'message', role: 'user', content: prompt(44) }
    const hi = { type: 'message', role: 'user', content: 'hi' }
    const conversation = await ask(RESPONSES, { model: 'm/small' }, [hi, middle, hi])
    t.equal(conversation.status, 200)
    t.ok(conversation.sent.length > 22_000, 'a long message is cut, not left out')
  },
)

t.test('an endpoint that the caller pins is not cut for unasked', async t => {
  const { ask } = await start(t)
  const provider = { order: ['small'], allow_fallbacks: false }
  for (const door of DOORS) {
    for (const kilobytes of [44, 300]) {
      const told = await ask(door, { model: 'm/all', provider }, prompt(kilobytes))
      t.equal(told.status, 400, `${door.path} ${kilobytes} KB`)
      t.match(told.text, /8000 tokens/)
      t.equal(told.asked, 0)
    }
    const asked = await ask(door, { model: 'm/all', provider, ...ON }, prompt(300))
    t.equal(asked.status, 200)
    t.equal(asked.model, 'small')
    t.ok(asked.isTold)
  }
})

t.test('asked for by name or by truncation, more than half is cut, but only where nothing fits', async t => {
  const { ask } = await start(t)
  for (const more of [ON, { truncation: 'auto' }]) {
    for (const stream of [false, true]) {
      const fits = await ask(RESPONSES, { model: 'm/all', stream, ...more }, prompt(300))
      t.equal(fits.model, 'large')
      t.notOk(fits.isTold)
      for (const kilobytes of [700, 2_000]) {
        const told = await ask(RESPONSES, { model: 'm/all', stream, ...more }, prompt(kilobytes))
        t.equal(told.status, 200)
        t.equal(told.model, 'large', 'the largest')
        t.ok(told.sent.length < 400_000, `${told.sent.length} bytes left of ${kilobytes} KB`)
        t.ok(Number(told.removed) > 50_000)
        t.ok(told.isTold)
      }
    }
    const tiny = await ask(RESPONSES, { model: 'm/tiny', ...more }, prompt(28))
    t.equal(tiny.status, 200)
    t.ok(tiny.isTold)
  }
})

t.test('a provider with a truncation of its own cuts for itself', async t => {
  const { ask } = await start(t)
  const told = await ask(RESPONSES, { model: 'm/own', truncation: 'auto' }, prompt(100))
  t.match(told.sent, '"truncation":"auto"')
  t.ok(told.sent.length > 100_000)
  t.notOk(told.isTold)
  const named = await ask(RESPONSES, { model: 'm/own', truncation: 'auto', ...ON }, prompt(100))
  t.ok(named.sent.length < 40_000)
})

t.test("compression keeps to a provider's limit of messages", async t => {
  const { ask } = await start(t)
  const input = Array.from({ length: 1_201 }, (_, at) => ({
    type: 'message',
    role: at % 2 === 0 ? 'user' : 'assistant',
    content: `turn ${at}`,
  }))
  const messagesIn = (sent: string) => (JSON.parse(sent) as { messages: unknown[] }).messages.length
  const told = await ask(RESPONSES, { model: 'm/claude', ...ON }, input)
  t.ok(messagesIn(told.sent) <= 1_000)
  t.ok(messagesIn(told.sent) > 990)
  t.match(told.sent, 'turn 0"')
  t.match(told.sent, 'turn 1200"')
  t.notMatch(told.sent, 'turn 600"')
  t.equal(
    messagesIn((await ask(RESPONSES, { model: 'm/claude' }, input)).sent),
    1_201,
    'unasked nothing is cut',
  )
})

t.test('settings of server tools are no part of the prompt', async t => {
  const { ask } = await start(t)
  const tools = [{ type: 'gateway:datetime', parameters: { timezone: 'UTC', note: 'x'.repeat(120_000) } }]
  t.equal((await ask(RESPONSES, { model: 'm/small', tools, ...OFF })).status, 200)
  const image = {
    type: 'image_generation',
    input_image_mask: { image_url: `https://x.test/${'x'.repeat(120_000)}` },
  }
  t.not(
    (await ask(RESPONSES, { model: 'm/small', tools: [image], ...OFF })).text.includes('context_length'),
    true,
  )
})

t.test('a socket is told in the stream too, and stays open', async t => {
  const { gateway, provider } = await start(t)
  const client = await openSocket(gateway.url, gateway.apiKey)
  t.teardown(() => client.close())
  const events = await client.ask({ model: 'm/all', input: prompt(700) })
  t.same(
    events.map(({ type }) => type),
    ['response.created', 'response.in_progress', 'response.failed'],
  )
  t.match(events.at(-1), { response: { status: 'failed', error: { code: 'context_length_exceeded' } } })
  provider.script('small', [{ text: 'Fine' }])
  t.equal((await client.ask({ model: 'm/small', input: 'hi' })).at(-1)?.type, 'response.completed')
})
