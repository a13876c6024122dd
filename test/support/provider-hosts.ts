/**
 * Every provider of the table, at its real address: a proxy routes every host to one TLS server of the test, which
 * answers in the format of the path and records its requests.
 */
import { writeFileSync } from 'node:fs'
import { createServer as createHttpServer, type IncomingMessage, type RequestListener } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, connect } from 'node:net'
import { join } from 'node:path'
import type { Test } from 'tap'
import { selfSigned } from '../providers/upstream/self-signed.ts'
import { awsMessage } from './aws-events.ts'
import { tempFolder } from './temp-folder.ts'

export interface HostCall {
  readonly url: string
  readonly path: string
  readonly headers: IncomingMessage['headers']
  readonly body: string
}

interface ProviderHosts {
  readonly proxy: string
  /** PEM file of the certificate that all hosts show. */
  readonly ca: string
  /** The same server without TLS; `http://local` in the URLs of calls. */
  readonly plainUrl: string
  /** Calls since it was last emptied, but for those of the token server. */
  readonly calls: HostCall[]
  readonly tokenCalls: HostCall[]
  /** True: calls fail, with their own headers and body as the message. */
  isEchoing: boolean
  /** Names of hosts that are overloaded. */
  readonly failing: Set<string>
}

export const TOKEN = 'ya29.token-of-the-test-0123456789'
const USAGE = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }

/** Replies by the ends of paths. */
const REPLIES: readonly (readonly [RegExp, unknown])[] = [
  [/\/token$/, { access_token: TOKEN, expires_in: 3600 }],
  [
    /\/chat\/completions$/,
    {
      id: 'c',
      object: 'chat.completion',
      choices: [{ index: 0, message: { role: 'assistant', content: 'ok' }, finish_reason: 'stop' }],
      usage: USAGE,
    },
  ],
  [
    /\/responses$/,
    {
      id: 'resp_1',
      object: 'response',
      status: 'completed',
      output: [
        {
          id: 'msg_1',
          type: 'message',
          role: 'assistant',
          status: 'completed',
          content: [{ type: 'output_text', text: 'ok', annotations: [] }],
        },
      ],
      usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 },
    },
  ],
  [
    /\/messages$|:rawPredict$/,
    {
      id: 'msg_1',
      type: 'message',
      role: 'assistant',
      content: [{ type: 'text', text: 'ok' }],
      stop_reason: 'end_turn',
      usage: { input_tokens: 1, output_tokens: 1 },
    },
  ],
  [
    /:generateContent$/,
    {
      candidates: [{ content: { role: 'model', parts: [{ text: 'ok' }] }, finishReason: 'STOP' }],
      usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 },
    },
  ],
  [
    /\/converse$/,
    {
      output: { message: { role: 'assistant', content: [{ text: 'ok' }] } },
      stopReason: 'end_turn',
      usage: { inputTokens: 1, outputTokens: 1, totalTokens: 2 },
    },
  ],
  [/\/embed$/, { id: 'e', embeddings: { float: [[1, 2]] }, meta: { billed_units: { input_tokens: 1 } } }],
  [/:predict$/, { predictions: [{ embeddings: { values: [1, 2], statistics: { token_count: 1 } } }] }],
  [/:batchEmbedContents$/, { embeddings: [{ values: [1, 2] }] }],
  [/\/embeddings$/, { object: 'list', data: [{ index: 0, embedding: [1, 2] }], usage: USAGE }],
]

const STREAM = Buffer.concat([
  awsMessage('messageStart', '{"role":"assistant"}'),
  awsMessage('contentBlockDelta', '{"contentBlockIndex":0,"delta":{"text":"ok"}}'),
  awsMessage('contentBlockStop', '{"contentBlockIndex":0}'),
  awsMessage('messageStop', '{"stopReason":"end_turn"}'),
  awsMessage('metadata', '{"usage":{"inputTokens":1,"outputTokens":1,"totalTokens":2}}'),
])

/** Starts the hosts. They end with the test. */
export async function startProviderHosts(
  t: Pick<Test, 'teardown'>,
  names: readonly string[],
): Promise<ProviderHosts> {
  const { key, cert } = selfSigned(names, true)
  const ca = join(tempFolder('sluice-hosts'), 'ca.pem')
  writeFileSync(ca, cert)
  const answer =
    (scheme: string): RequestListener =>
    (request, response) => {
      let body = ''
      request.setEncoding('utf8')
      request.on('data', (chunk: string) => {
        body += chunk
      })
      request.on('end', () => {
        const host = scheme === 'http' ? 'local' : request.headers.host
        const path = request.url ?? ''
        const call = { url: `${scheme}://${host}${path}`, path, headers: request.headers, body }
        const isToken = path === '/token'
        if (isToken) hosts.tokenCalls.push(call)
        else hosts.calls.push(call)
        if (hosts.isEchoing && !isToken) {
          const message = JSON.stringify(request.headers)
          response
            .writeHead(400, { 'content-type': 'application/json' })
            .end(JSON.stringify({ message, error: { message } }))
          return
        }
        if (hosts.failing.has(host ?? '')) {
          response.writeHead(429, { 'content-type': 'application/json' }).end('{"error":{"message":"busy"}}')
          return
        }
        if (path.endsWith('/converse-stream')) {
          response.writeHead(200, { 'content-type': 'application/vnd.amazon.eventstream' }).end(STREAM)
          return
        }
        const reply = REPLIES.find(([end]) => end.test(path.split('?')[0] ?? ''))?.[1]
        response.writeHead(reply === undefined ? 404 : 200, { 'content-type': 'application/json' })
        response.end(JSON.stringify(reply ?? {}))
      })
    }
  const tls = createTlsServer({ key, cert }, answer('https'))
  const plain = createHttpServer(answer('http'))
  const proxy = createHttpServer()
  proxy.on('connect', (_, socket) => {
    const onward = connect((tls.address() as AddressInfo).port, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n')
      onward.pipe(socket)
      socket.pipe(onward)
    })
    onward.on('error', () => socket.destroy())
    socket.on('error', () => onward.destroy())
    socket.on('close', () => onward.destroy())
  })
  for (const server of [tls, plain, proxy]) {
    await new Promise<void>(done => server.listen(0, '127.0.0.1', done))
    t.teardown(() => {
      server.close()
      server.closeAllConnections()
    })
  }
  const port = (server: typeof plain | typeof tls) => (server.address() as AddressInfo).port
  const hosts: ProviderHosts = {
    proxy: `http://127.0.0.1:${port(proxy)}`,
    ca,
    plainUrl: `http://127.0.0.1:${port(plain)}/v1`,
    calls: [],
    tokenCalls: [],
    isEchoing: false,
    failing: new Set(),
  }
  return hosts
}
