/** Checks with OpenAI's own client, if it is installed in the user's project or next to this package. */
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { BASIS, BOTH, type Check, type CheckVerdict, checksOf, fail, pass, skip } from '../check.ts'
import { type Dialect, FUNCTION_NAME } from '../dialects.ts'
import { mark, UNKNOWN_MODEL } from '../provider.ts'
import { asCurl } from '../repeat.ts'
import { objectOf } from '../sse.ts'
import { MAX_TOKENS, newId, type Tester } from '../tester.ts'
import { NO_CALLS } from './replies.ts'

type Sdk = typeof import('openai')
type Client = InstanceType<Sdk['OpenAI']>

const BODY_MAX_BYTES = 8 * 1024 * 1024

interface Row {
  readonly name: string
  readonly asserts: string
  run(client: Client, dialect: Dialect, tester: Tester, sdk: Sdk): Promise<CheckVerdict>
}

const ROWS: readonly Row[] = [
  {
    name: 'whole',
    asserts: 'the official client reads a reply, with its text and usage',
    async run(client, dialect, tester) {
      if (dialect.name === 'chat') {
        const { choices, usage } = await client.chat.completions.create({
          ...chatBody(tester),
          stream: false,
        })
        return verdictOf(choices[0]?.message.content, usage?.total_tokens)
      }
      const reply = await client.responses.create({ ...responsesBody(tester), stream: false })
      return verdictOf(reply.output_text, reply.usage?.total_tokens)
    },
  },
  {
    name: 'stream',
    asserts: 'the official client follows a stream to its end, and assembles the whole answer from it',
    async run(client, dialect, tester) {
      if (dialect.name === 'chat') {
        const stream = client.chat.completions.stream({
          ...chatBody(tester),
          stream_options: { include_usage: true },
        })
        let text = ''
        stream.on('content', delta => {
          text += delta
        })
        const { choices, usage } = await stream.finalChatCompletion()
        if (choices[0]?.message.content !== text) return fail('the deltas differ from the final message')
        return verdictOf(text, usage?.total_tokens)
      }
      const stream = client.responses.stream({ ...responsesBody(tester), stream: true })
      let text = ''
      stream.on('response.output_text.delta', ({ delta }) => {
        text += delta
      })
      const reply = await stream.finalResponse()
      if (reply.output_text !== text) return fail('the deltas differ from the final response')
      return verdictOf(text, reply.usage?.total_tokens)
    },
  },
  {
    name: 'call',
    asserts: 'the official client assembles a function call from the deltas of a stream',
    async run(client, dialect, tester) {
      const call = await (dialect.name === 'chat' ? chatCall(client, tester) : responsesCall(client, tester))
      if (call === undefined) return tester.deps.provider === null ? skip(NO_CALLS) : fail('there is no call')
      const isJson = objectOf(call.arguments) !== undefined
      return call.name === FUNCTION_NAME && isJson
        ? pass(call.arguments)
        : fail(`${call.name}(${call.arguments})`)
    },
  },
  {
    name: 'error',
    asserts: 'the official client throws a typed error with a message for a model that does not exist',
    async run(client, dialect, tester, { APIError }) {
      const answer =
        dialect.name === 'chat'
          ? client.chat.completions.create({ ...chatBody(tester), model: UNKNOWN_MODEL })
          : client.responses.create({ ...responsesBody(tester), model: UNKNOWN_MODEL })
      try {
        await answer
        return fail('no error was thrown')
      } catch (error) {
        if (!(error instanceof APIError)) throw error
        const { status, message } = error
        if (/no body/.test(message)) return fail(`${status}: the client finds no message`)
        return status === 404 || status === 400 ? pass(message) : fail(`${status}: ${message}`)
      }
    },
  },
]

const COMMON = { group: 'sdk', dialects: BOTH, basis: `${BASIS.api}, openai for Node`, sends: 1 } as const

export const SDK_CHECKS: readonly Check[] = checksOf(
  'sdk',
  COMMON,
  ROWS.map(({ run, ...row }) => ({
    ...row,
    matters: 'most clients use this library',
    async run(tester, dialect) {
      const sdk = await load()
      if (sdk === null) return skip('install openai: npm install openai')
      tester.repeat = `${asCurl(`${tester.deps.target.url}${dialect.path}`, 'POST', [], null)} # through the openai package`
      const { client, close } = await openClient(tester, sdk)
      try {
        return await run(client, dialect, tester, sdk)
      } catch (error) {
        if (error instanceof sdk.OpenAIError || error instanceof TypeError || error instanceof SyntaxError)
          return fail(`the client throws: ${error.message}`)
        throw error
      } finally {
        await close()
      }
    },
  })),
)

/** Null: not installed. */
async function load(): Promise<Sdk | null> {
  for (const location of [pathToFileURL(join(process.cwd(), 'prove.js')).href, import.meta.url]) {
    try {
      return (await import(pathToFileURL(createRequire(location).resolve('openai')).href)) as Sdk
    } catch {
      // Not found here.
    }
  }
  return null
}

interface OpenClient {
  readonly client: Client
  close(): Promise<void>
}

/** A client that stays within the request budget: one try, a connection of its own, and a limited body. */
async function openClient(tester: Tester, { OpenAI }: Sdk): Promise<OpenClient> {
  const { target, ration, silenceMs } = tester.deps
  const { Agent, fetch } = await import('undici')
  const release = ration.connect()
  const agent = new Agent({ connections: 1, pipelining: 0 })
  const client = new OpenAI({
    apiKey: target.key,
    baseURL: target.url,
    organization: null,
    project: null,
    maxRetries: 0,
    timeout: Math.ceil(Math.min(silenceMs, ration.leftMs)),
    defaultHeaders: Object.fromEntries(target.headers),
    async fetch(url, { method = 'GET', headers, body, signal } = {}) {
      ration.spend(1)
      const timeLimit = AbortSignal.timeout(Math.ceil(ration.leftMs))
      const reply = await fetch(String(url), {
        method,
        headers: [...new Headers(headers)],
        body: typeof body === 'string' ? body : null,
        signal: signal == null ? timeLimit : AbortSignal.any([timeLimit, signal]),
        redirect: 'manual',
        dispatcher: agent,
      })
      const { status, statusText } = reply
      const stream = reply.body as ReadableStream<Uint8Array> | null
      return new Response(stream === null ? null : limitBody(stream), {
        status,
        statusText,
        headers: [...reply.headers],
      })
    },
  })
  return {
    client,
    async close() {
      await agent.destroy()
      release()
    },
  }
}

function limitBody(body: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
  let bytes = 0
  return body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        bytes += chunk.length
        if (bytes > BODY_MAX_BYTES) controller.error(new TypeError('the body is too large'))
        else controller.enqueue(chunk)
      },
    }),
  )
}

function prompt({ deps }: Tester): string {
  const text = 'Count from one to twenty in words, separated by spaces.'
  return deps.provider === null ? text : `${mark('plain', newId())} ${text}`
}

function chatBody(tester: Tester) {
  const { model, maxTokensField } = tester.deps.target
  return {
    model,
    messages: [{ role: 'user' as const, content: prompt(tester) }],
    [maxTokensField]: MAX_TOKENS,
  }
}

function responsesBody(tester: Tester) {
  return { model: tester.deps.target.model, input: prompt(tester), max_output_tokens: MAX_TOKENS }
}

const PARAMETERS = { type: 'object', properties: { location: { type: 'string' } }, required: ['location'] }

async function chatCall(client: Client, tester: Tester) {
  const stream = client.chat.completions.stream({
    ...chatBody(tester),
    tools: [{ type: 'function', function: { name: FUNCTION_NAME, parameters: PARAMETERS } }],
    tool_choice: { type: 'function', function: { name: FUNCTION_NAME } },
  })
  const { choices } = await stream.finalChatCompletion()
  const call = choices[0]?.message.tool_calls?.[0]
  return call?.type === 'function' ? call.function : undefined
}

async function responsesCall(client: Client, tester: Tester) {
  const stream = client.responses.stream({
    ...responsesBody(tester),
    stream: true,
    tools: [{ type: 'function', name: FUNCTION_NAME, parameters: PARAMETERS, strict: false }],
    tool_choice: { type: 'function', name: FUNCTION_NAME },
  })
  const { output } = await stream.finalResponse()
  return output.find(item => item.type === 'function_call')
}

function verdictOf(text: string | null | undefined, tokens: number | undefined): CheckVerdict {
  if (text === null || text === undefined || text === '') return fail('the text is empty')
  return tokens === undefined
    ? fail('there is no usage')
    : pass(`${text.length} characters, ${tokens} tokens`)
}
