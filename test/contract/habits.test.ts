/** What servers are known to do in their replies, as clients of every dialect see it: one meaning at all doors. */
import { createServer, type ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { startGateway, type TestGateway } from '../support/gateway.ts'
import { type Expected, type Habit, habits } from '../support/habits.ts'
import { closing, listening } from '../support/listening.ts'

type Loose = Record<string, unknown>
type Call = readonly [name: string, input: unknown]

/** What a client has read. */
interface Read {
  readonly end: unknown
  readonly calls: readonly Call[]
  readonly ids: readonly unknown[]
  readonly text: string
  readonly stopSequence?: unknown
}

interface Door {
  readonly name: string
  path(model: string, stream: boolean): string
  body(model: string, stream: boolean): Loose
  /** @param events of a stream, or the one answer */
  read(events: readonly Loose[], isStream: boolean): Read
  /** The words of the API for each end. */
  readonly ends: Readonly<Record<string, string | RegExp>>
  /** Arguments are objects: a call that was cut is left out where it was not told yet. */
  readonly leavesOut: boolean
}

const textIn = (value: unknown): string => (typeof value === 'string' ? value : '')
const list = (value: unknown): readonly Loose[] => (Array.isArray(value) ? (value as Loose[]) : [])

function parsed(input: unknown): unknown {
  try {
    return JSON.parse(String(input)) as unknown
  } catch {
    return input
  }
}

const ENDS = { stop: 'stop', tool_calls: 'tool_calls', length: 'length', content_filter: 'content_filter' }

const DOORS: readonly Door[] = [
  {
    name: 'chat',
    path: () => '/v1/chat/completions',
    body: (model, stream) => ({ model, stream, messages: [{ role: 'user', content: 'hi' }] }),
    ends: { ...ENDS, other: 'stop' },
    leavesOut: false,
    read(events) {
      const calls: { id: unknown; name: string; input: string }[] = []
      let text = ''
      let end: unknown = null
      for (const event of events) {
        if (event['error'] !== undefined) end = 'failed'
        for (const choice of list(event['choices'])) {
          const said = (choice['delta'] ?? choice['message'] ?? {}) as Loose
          text += textIn(said['content'])
          end = choice['finish_reason'] ?? end
          for (const [at, { index = at, id, function: called }] of list(said['tool_calls']).entries()) {
            const { name, arguments: input } = called as Loose
            const call = calls[Number(index)] ?? { id, name: textIn(name), input: '' }
            calls[Number(index)] = { ...call, input: call.input + textIn(input) }
          }
        }
      }
      return {
        end: end === 'error' ? 'failed' : end,
        text,
        ids: calls.map(({ id }) => id),
        calls: calls.map(({ name, input }) => [name, parsed(input)]),
      }
    },
  },
  {
    name: 'responses',
    path: () => '/v1/responses',
    body: (model, stream) => ({ model, stream, input: 'hi' }),
    ends: {
      stop: 'completed',
      tool_calls: 'completed',
      other: 'completed',
      length: 'max_output_tokens',
      content_filter: 'content_filter',
    },
    leavesOut: false,
    read(events, isStream) {
      const answer = (isStream ? events.at(-1)?.['response'] : events[0]) as Loose
      const output = list(answer['output'])
      const calls = output.filter(item => item['type'] === 'function_call')
      const details = answer['incomplete_details'] as Loose | null
      return {
        end: details?.['reason'] ?? answer['status'],
        text: output.flatMap(item => list(item['content']).map(part => textIn(part['text']))).join(''),
        ids: calls.map(call => call['call_id']),
        calls: calls.map(call => [String(call['name']), parsed(call['arguments'])]),
      }
    },
  },
  {
    name: 'messages',
    path: () => '/v1/messages',
    body: (model, stream) => ({
      model,
      stream,
      max_tokens: 100,
      stop_sequences: ['END'],
      messages: [{ role: 'user', content: 'hi' }],
    }),
    ends: {
      stop: /^(end_turn|stop_sequence)$/,
      other: 'end_turn',
      tool_calls: 'tool_use',
      length: /^(max_tokens|model_context_window_exceeded)$/,
      content_filter: 'refusal',
    },
    leavesOut: true,
    read(events) {
      const blocks: { type: unknown; id: unknown; name: string; text: string; input: unknown }[] = []
      let end: unknown = null
      let stopSequence: unknown = null
      for (const event of events) {
        if (event['type'] === 'error') end = 'failed'
        const stop = (event['delta'] ?? event) as Loose
        end = stop['stop_reason'] ?? end
        stopSequence = stop['stop_sequence'] ?? stopSequence
        const whole = list(event['content'])
        const opened = event['content_block'] === undefined ? whole : [event['content_block'] as Loose]
        for (const { type, id, name, text, input } of opened)
          blocks.push({
            type,
            id,
            name: textIn(name),
            text: textIn(text),
            input: whole.length > 0 ? input : '',
          })
        const block = blocks[Number(event['index'])]
        if (block === undefined || event['type'] !== 'content_block_delta') continue
        block.text += textIn(stop['text'])
        if (stop['partial_json'] !== undefined)
          block.input = String(block.input) + String(stop['partial_json'])
      }
      const calls = blocks.filter(({ type }) => type === 'tool_use')
      return {
        end,
        text: blocks.map(({ text }) => text).join(''),
        ids: calls.map(({ id }) => id),
        calls: calls.map(({ name, input }) => [name, typeof input === 'string' ? parsed(input) : input]),
        stopSequence,
      }
    },
  },
  {
    name: 'gemini',
    path: (model, stream) =>
      `/v1beta/models/${model}:${stream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`,
    body: () => ({ contents: [{ role: 'user', parts: [{ text: 'hi' }] }] }),
    ends: {
      stop: 'STOP',
      other: /^(STOP|OTHER|NO_IMAGE)$/,
      tool_calls: 'STOP',
      length: 'MAX_TOKENS',
      content_filter: /^(SAFETY|RECITATION|PROHIBITED_CONTENT)$/,
    },
    leavesOut: true,
    read(events) {
      let end: unknown = null
      const parts: Loose[] = []
      for (const event of events) {
        if (event['error'] !== undefined) end = 'failed'
        for (const { content, finishReason } of list(event['candidates'])) {
          end = finishReason ?? end
          parts.push(...list((content as Loose | undefined)?.['parts']))
        }
      }
      const calls = parts.flatMap(({ functionCall }) =>
        functionCall === undefined ? [] : [functionCall as Loose],
      )
      return {
        end,
        text: parts.map(({ text, thought }) => (thought === true ? '' : textIn(text))).join(''),
        ids: calls.map(({ id }) => id),
        calls: calls.map(({ name, args }) => [String(name), args]),
      }
    },
  },
]

/** A provider of each format, which plays the habit that the model names. */
async function start(t: Test, played: readonly Habit[]): Promise<TestGateway> {
  const server = createServer((request, response) => {
    let body = ''
    request.setEncoding('utf8').on('data', (piece: string) => {
      body += piece
    })
    request.on('end', () => answer(response, played, `${request.url} ${body}`))
  })
  const { url } = await listening(server)
  const formats = [...new Set(played.map(({ format }) => format))]
  const gateway = await startGateway({
    providers: formats.map(slug => ({ slug, name: slug, format: slug, baseUrl: url, apiKey: 'none' })),
    models: played.map(({ format }, at) => ({
      id: `habit/h${at}`,
      endpoints: [{ provider: format, upstreamModel: `h${at}` }],
    })) as never,
  })
  t.teardown(async () => {
    await gateway.close()
    await closing(server)
  })
  return gateway
}

/** `request`: names the model, in its path or its body. */
function answer(response: ServerResponse, played: readonly Habit[], request: string): void {
  const { isStream, format, bytes } = played[Number(/[/"]h(\d+)[:/"]/.exec(request)?.[1])] as Habit
  const type = !isStream
    ? 'application/json'
    : format === 'bedrock-converse'
      ? 'application/vnd.amazon.eventstream'
      : 'text/event-stream'
  response.writeHead(200, { 'content-type': type })
  response.end(bytes)
}

function eventsIn(text: string): readonly Loose[] {
  return (
    text
      .split('\n')
      // The last word of a failed stream is bare in Google's API.
      .filter(line => /^(data: )?\{/.test(line))
      .map(line => JSON.parse(line.replace('data: ', '')) as Loose)
  )
}

function expectedAt(
  door: Door,
  { calls, text, end, stopSequence }: Expected,
): Readonly<Record<string, unknown>> {
  const told = calls?.filter(([, , status]) => status === undefined || !door.leavesOut)
  return {
    end: door.ends[end] ?? end,
    ...(told === undefined ? {} : { calls: told.map(([name, input]): Call => [name, input]) }),
    ...(text === undefined ? {} : { text }),
    ...(stopSequence === undefined || stopSequence === '' || door.name !== 'messages'
      ? {}
      : { stopSequence }),
  }
}

t.test('each habit means the same to clients of every dialect', async t => {
  const played = habits()
  const gateway = await start(t, played)
  let asked = 0
  for (const [at, habit] of played.entries()) {
    for (const door of DOORS) {
      const name = `${habit.name}, ${door.name}`
      const reply = await fetch(
        `http://127.0.0.1:${gateway.port}${door.path(`habit/h${at}`, habit.isStream)}`,
        {
          method: 'POST',
          headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
          body: JSON.stringify(door.body(`habit/h${at}`, habit.isStream)),
        },
      )
      asked++
      const body = await reply.text()
      if (habit.expect.words !== undefined) t.match(body, habit.expect.words, `${name}: the provider's words`)
      if (reply.status !== 200) {
        t.equal('failed', habit.expect.end, `${name}: ${body}`)
        continue
      }
      const events = habit.isStream ? eventsIn(body) : [JSON.parse(body) as Loose]
      const { ids, ...read } = door.read(events, habit.isStream)
      t.equal(new Set(ids).size, ids.length, `${name}: ids of their own`)
      if (habit.expect.noId !== undefined) t.notOk(ids.includes(habit.expect.noId), name)
      // What was told of a call before it was cut stands.
      const calls = habit.isStream && door.leavesOut ? read.calls.filter(isWhole) : read.calls
      t.match({ ...read, calls }, expectedAt(door, habit.expect), name)
    }
  }
  t.comment(`${played.length} replies at ${DOORS.length} doors, ${asked} requests`)
})

function isWhole([, input]: Call): boolean {
  return typeof input === 'object'
}

const USAGE = { prompt_tokens: 9, completion_tokens: 4, total_tokens: 13 }
const chunk = (fields: object): string =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'm', ...fields })}\n\n`
const said = (finish: string | null, usage?: object): string =>
  chunk({ choices: [{ index: 0, delta: { content: 'hello' }, finish_reason: finish }], usage })

/** Sends a stream, and then does something else than to end it. */
async function startUnended(t: Test, stream: string, then: (response: ServerResponse) => void) {
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(stream, () => then(response))
    })
  })
  const { url } = await listening(server)
  const gateway = await startGateway({
    providers: [{ slug: 'p', name: 'p', format: 'openai-chat', baseUrl: url, apiKey: 'none' }],
    models: [{ id: 'habit/unended', endpoints: [{ provider: 'p' }] }] as never,
  })
  t.teardown(async () => {
    server.closeAllConnections()
    await gateway.close()
    await closing(server)
  })
  return gateway
}

async function endOf(gateway: TestGateway): Promise<unknown> {
  const reply = await gateway.respond({ model: 'habit/unended', input: 'hi', stream: true })
  return eventsIn(await reply.text()).at(-1)?.['type']
}

t.test('after the finish and the usage nothing is waited for, and a reset changes nothing', async t => {
  const waits = await startUnended(t, said('stop', USAGE), () => undefined)
  t.equal(await endOf(waits), 'response.completed', 'a provider that goes silent')
  const resets = await startUnended(t, said('stop', USAGE), ({ socket }) => socket?.resetAndDestroy())
  t.equal(await endOf(resets), 'response.completed', 'a provider that resets the connection')
  const cut = await startUnended(t, said(null, USAGE), ({ socket }) => socket?.resetAndDestroy())
  t.equal(await endOf(cut), 'response.failed', 'one that does so before its finish')
})

t.test('a word that nobody knows ends a reply, and is counted', async t => {
  const gateway = await startUnended(t, `${said('zzz', USAGE)}data: [DONE]\n\n`, response => response.end())
  t.equal(await endOf(gateway), 'response.completed')
  const exposed = await gateway.serving.metrics.registry.metrics()
  t.match(exposed, 'gateway_unknown_finishes_total{format="openai-chat"} 1')
})
