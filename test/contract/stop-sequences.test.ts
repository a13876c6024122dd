/** Stop sequences that a provider does not take end the answer all the same: at all doors, streamed and whole. */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { parrotRows, speaking, startParrot } from '../support/provider.ts'

const parrot = await startParrot(t)
const gateway = await startGateway(parrotRows(parrot.url))
t.teardown(() => gateway.close())

interface Said {
  readonly text: string
  readonly finish: string | null
  readonly sequence: string | null
  readonly changed: string | null
}

/** The fields of an answer, or of the event of a stream, that the doors name differently. */
interface Fields {
  readonly choices?: readonly {
    readonly message?: { readonly content: string }
    readonly delta?: { readonly content?: string }
    readonly finish_reason: string | null
  }[]
  readonly content?: readonly { readonly text: string }[]
  readonly delta?: { readonly text?: string; readonly stop_reason?: string; readonly stop_sequence?: string }
  readonly stop_reason?: string
  readonly stop_sequence?: string | null
  readonly candidates?: readonly {
    readonly content?: { readonly parts: readonly { readonly text?: string }[] }
    readonly finishReason?: string
  }[]
}

interface Door {
  readonly name: string
  readonly stop: { readonly finish: string; readonly tells: boolean }
  path(model: string, stream: boolean): string
  body(model: string, stops: readonly string[], stream: boolean): object
  read(fields: Fields): {
    text: string
    finish?: string | null | undefined
    sequence?: string | null | undefined
  }
}

const DOORS: readonly Door[] = [
  {
    name: 'chat',
    stop: { finish: 'stop', tells: false },
    path: () => '/chat/completions',
    body: (model, stop, stream) => ({ model, stop, stream, messages: [{ role: 'user', content: 'Hi' }] }),
    read: ({ choices: [choice] = [] }) => ({
      text: choice?.message?.content ?? choice?.delta?.content ?? '',
      finish: choice?.finish_reason,
    }),
  },
  {
    name: 'messages',
    stop: { finish: 'stop_sequence', tells: true },
    path: () => '/messages',
    body: (model, stop_sequences, stream) => ({
      model,
      stop_sequences,
      stream,
      max_tokens: 99,
      messages: [{ role: 'user', content: 'Hi' }],
    }),
    read: ({ content, delta, stop_reason, stop_sequence }) => ({
      text: content?.map(({ text }) => text).join('') ?? delta?.text ?? '',
      finish: stop_reason ?? delta?.stop_reason,
      sequence: stop_sequence ?? delta?.stop_sequence,
    }),
  },
  {
    name: 'gemini',
    stop: { finish: 'STOP', tells: false },
    path: (model, stream) =>
      `/../v1beta/models/${model}:${stream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`,
    body: (_, stopSequences) => ({
      contents: [{ role: 'user', parts: [{ text: 'Hi' }] }],
      generationConfig: { stopSequences },
    }),
    read: ({ candidates: [candidate] = [] }) => ({
      text: candidate?.content?.parts.map(({ text = '' }) => text).join('') ?? '',
      finish: candidate?.finishReason,
    }),
  },
]

async function said(door: Door, format: string, stops: readonly string[], stream: boolean): Promise<Said> {
  const model = `parrot/${format}`
  const reply = await fetch(`${gateway.url}${door.path(model, stream)}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(door.body(model, stops, stream)),
  })
  const raw = await reply.text()
  if (reply.status !== 200) t.fail(`${door.name} ${format}: ${raw}`)
  const events = stream
    ? [...raw.matchAll(/^data: (\{.*)$/gm)].map(([, json = '']) => JSON.parse(json) as Fields)
    : [JSON.parse(raw) as Fields]
  let text = ''
  let finish: string | null = null
  let sequence: string | null = null
  for (const event of events) {
    const read = door.read(event)
    text += read.text
    finish = read.finish ?? finish
    sequence = read.sequence ?? sequence
  }
  return { text, finish, sequence, changed: reply.headers.get('x-gateway-changed') }
}

const TEXT = 'one ENEND two'

t.test('a Responses provider has none: the text ends before the sequence, over every border', async t => {
  for (const door of DOORS) {
    for (const stream of [false, true]) {
      for (let border = 1; border < TEXT.length; border++) {
        parrot.parts = speaking(TEXT.slice(0, border), TEXT.slice(border))
        const answer = await said(door, 'openai-responses', ['never', 'END'], stream)
        t.same(
          answer,
          {
            text: 'one EN',
            finish: door.stop.finish,
            sequence: door.stop.tells ? 'END' : null,
            changed: '1',
          },
          `${door.name}, ${stream ? 'streamed' : 'whole'}, border at ${border}`,
        )
        t.notMatch(parrot.bodies.at(-1), 'END')
      }
    }
  }
})

t.test(
  'character by character, at the beginning and the end, and a beginning that goes on otherwise',
  async t => {
    const cases = [
      ['ENDone', ['END'], '', 'END'],
      ['oneEND', ['END'], 'one', 'END'],
      ['one EN', ['END'], 'one EN', null],
      ['abcabd', ['abd'], 'abc', 'abd'],
      ['x aab', ['aab', 'ab'], 'x ', 'aab'],
      ['x abcd', ['abcd', 'bc'], 'x a', 'bc'],
      ['pair 😀 end', ['😀'], 'pair ', '😀'],
    ] as const
    for (const door of DOORS) {
      for (const stream of [false, true]) {
        for (const [text, stops, expected, sequence] of cases) {
          parrot.parts = speaking(...text)
          const answer = await said(door, 'openai-responses', stops, stream)
          const at = `${door.name}, ${stream ? 'streamed' : 'whole'}: ${text}`
          t.equal(answer.text, expected, at)
          if (door.stop.tells) t.equal(answer.sequence, sequence, at)
        }
      }
    }
  },
)

t.test('sequences beyond the number that a provider takes, and blank ones', async t => {
  const many = ['s1', 's2', 's3', 's4', 's5', 'END']
  for (const stream of [false, true]) {
    const [, messages, gemini] = DOORS as [Door, Door, Door]
    parrot.parts = speaking('one ', 'EN', 'D two')
    const answer = await said(messages, 'google-gemini', many, stream)
    t.match(answer, { text: 'one ', finish: 'stop_sequence', sequence: 'END', changed: '1' })
    t.match(parrot.bodies.at(-1), '"s5"')
    t.notMatch(parrot.bodies.at(-1), '"END"')
    parrot.parts = speaking('one\n', '\ntwo')
    const blank = await said(gemini, 'anthropic-messages', ['\n\n'], stream)
    t.match(blank, { text: 'one', finish: 'STOP', changed: '1' })
    t.notMatch(parrot.bodies.at(-1), 'stop_sequences')
  }
})

t.test('the provider of a whole reply is paid for what it counted', async t => {
  parrot.parts = speaking('one END two')
  const reply = await fetch(`${gateway.url}/messages`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify((DOORS[1] as Door).body('parrot/openai-responses', ['END'], false)),
  })
  const { usage } = (await reply.json()) as { usage: { output_tokens: number } }
  t.ok(usage.output_tokens > 0)
})
