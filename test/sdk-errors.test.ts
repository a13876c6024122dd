/** docs/sdk-errors.md against the real SDKs: the exception that each of them throws at each status of the gateway. */
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import Anthropic from '@anthropic-ai/sdk'
import { GoogleGenAI } from '@google/genai'
import { OpenRouter } from '@openrouter/sdk'
import OpenAI from 'openai'
import t from 'tap'
import { FAILURES, type FailureCode, GatewayError } from '../src/base/errors.ts'
import { chatCompletions, gemini, messages, responsesDialect } from './support/dialects.ts'
import { listening } from './support/listening.ts'

/** The status of the reply, and which client asks, are in the key that it sends. */
const server = createServer((request, response) => {
  const { authorization, 'x-api-key': own, 'x-goog-api-key': google } = request.headers
  const [client = '', code = ''] = String(google ?? own ?? authorization?.replace(/^Bearer /, '')).split(':')
  const dialect = {
    openai: responsesDialect,
    anthropic: messages,
    openrouter: chatCompletions,
    google: gemini,
  }[client]
  if (dialect === undefined) throw new Error(client)
  const error = new GatewayError(code as FailureCode, 'This is the message')
  const body = dialect.failure(error, { id: 'gen-1', metadata: null, usage: null, request: null })
  request.resume()
  response.writeHead(error.status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
})
const { url: root } = await listening(server, t)

const CONTENT = [{ role: 'user' as const, content: 'Hello' }]
const ASK: Readonly<Record<string, (code: string) => Promise<unknown>>> = {
  openai: async code =>
    await new OpenAI({ baseURL: `${root}/v1`, apiKey: `openai:${code}`, maxRetries: 0 }).responses.create({
      model: 'x',
      input: 'Hello',
    }),
  anthropic: async code =>
    await new Anthropic({ baseURL: root, apiKey: `anthropic:${code}`, maxRetries: 0 }).messages.create({
      model: 'x',
      max_tokens: 1,
      messages: CONTENT,
    }),
  openrouter: code =>
    new OpenRouter({
      serverURL: `${root}/v1`,
      apiKey: `openrouter:${code}`,
      retryConfig: { strategy: 'none' },
    }).chat.send({ chatRequest: { model: 'x', messages: CONTENT, stream: false as const } }),
  google: code =>
    new GoogleGenAI({
      apiKey: `google:${code}`,
      httpOptions: { baseUrl: root, retryOptions: { attempts: 1 } },
    }).models.generateContent({ model: 'x', contents: 'Hello' }),
}

/** Codes that are sent over HTTP, by their status. */
function codesByStatus(): ReadonlyMap<number, readonly FailureCode[]> {
  const all = new Map<number, FailureCode[]>()
  for (const [code, { status }] of Object.entries(FAILURES) as [FailureCode, { status: number }][])
    if (code !== 'client_closed') all.set(status, [...(all.get(status) ?? []), code])
  return all
}

t.test('the table of the page has the exception of each SDK at each status', async t => {
  const expected: string[] = []
  for (const [status, codes] of [...codesByStatus()].toSorted(([a], [b]) => a - b)) {
    const names: string[] = []
    for (const [client, ask] of Object.entries(ASK)) {
      const thrown = new Set<string>()
      for (const code of codes) {
        const error = await ask(code).then(
          () => null,
          (error: unknown) => error,
        )
        if (!(error instanceof Error)) throw new Error(`${client} throws nothing at ${code}`)
        const told = Reflect.get(error, 'status') ?? Reflect.get(error, 'statusCode')
        t.equal(told, status, `${client} tells the status of ${code}`)
        // The cause of a fault of ours stays here.
        const message = code === 'internal' ? 'Internal Server Error' : 'This is the message'
        t.match(error.message, message, `${client} tells the message of ${code}`)
        thrown.add(error.constructor.name)
      }
      t.equal(thrown.size, 1, `${client}: one class for ${status}`)
      names.push(`\`${[...thrown].join('` or `')}\``)
    }
    expected.push(`| ${status} | ${codes.map(code => `\`${code}\``).join(', ')} | ${names.join(' | ')} |`)
  }
  const page = readFileSync(join(import.meta.dirname, '../docs/sdk-errors.md'), 'utf8')
  const rows = page.split('\n').filter(line => /^\| \d{3} \|/.test(line))
  t.same(rows, expected, expected.join('\n'))
})
