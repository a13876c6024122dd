/** A real MCP server over HTTP, built with the official library; and servers that send whatever a test gives them. */
import { randomUUID } from 'node:crypto'
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { ReadableStream } from 'node:stream/web'
import {
  type CallToolResult,
  createMcpHandler,
  isInitializeRequest,
  Server,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/server'

export interface McpServerTool {
  readonly name: string
  readonly description?: string
  readonly inputSchema?: Readonly<Record<string, unknown>>
  readonly annotations?: Readonly<Record<string, boolean>>
  /** Default: says its arguments. */
  readonly run?: (
    args: Readonly<Record<string, unknown>>,
    signal: AbortSignal,
  ) => CallToolResult | Promise<CallToolResult>
}

export interface McpServerOptions {
  readonly tools: readonly McpServerTool[]
  /** Tools on a page of the list. Default: all. */
  readonly pageSize?: number
  /** Replies are JSON documents instead of event streams. */
  readonly json?: boolean
  /** It speaks the newer protocol alone, which has no sessions. Default: the older one alone. */
  readonly isNew?: boolean
  readonly host?: string
}

interface McpRequest {
  readonly method: string
  readonly headers: IncomingMessage['headers']
  /** The JSON-RPC method of a POST. */
  readonly rpc: string | null
  readonly params: unknown
}

export interface RunningServer {
  readonly url: string
  readonly requests: McpRequest[]
  /** Connections accepted so far. */
  readonly connections: () => number
  /** Connections that are open now. */
  readonly open: () => number
  close(): Promise<void>
}

/** Any HTTP server on a port of its own, which notes who comes. */
export async function startHttp(listener: RequestListener, host = '127.0.0.1'): Promise<RunningServer> {
  const requests: McpRequest[] = []
  const sockets = new Set<Socket>()
  let accepted = 0
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', chunk => chunks.push(chunk))
    request.on('end', () => {
      const body: unknown = parsed(Buffer.concat(chunks).toString())
      const { method = null, params = null } = (body ?? {}) as { method?: string; params?: unknown }
      requests.push({ method: request.method ?? '', headers: request.headers, rpc: method, params })
      Object.assign(request, { parsedBody: body })
      listener(request, response)
    })
  })
  server.on('connection', socket => {
    accepted++
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })
  await new Promise<void>(done => server.listen(0, host, done))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://${host}:${port}/mcp`,
    requests,
    connections: () => accepted,
    open: () => sockets.size,
    async close() {
      for (const socket of sockets) socket.destroy()
      await new Promise(done => server.close(done))
    },
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

/** The JSON-RPC message of a request that `startHttp` has read. */
export function messageOf(request: IncomingMessage): {
  id?: unknown
  method?: string
  params?: Record<string, unknown>
} {
  return ((request as { parsedBody?: unknown }).parsedBody ?? {}) as ReturnType<typeof messageOf>
}

/** An MCP server with these tools, made with the official library. */
export async function startMcpServer({
  tools,
  pageSize = tools.length,
  json = false,
  isNew = false,
  host,
}: McpServerOptions): Promise<RunningServer> {
  const { serve, close } = isNew ? newServing(tools, pageSize, json) : oldServing(tools, pageSize, json)
  const running = await startHttp((request, response) => {
    answer(serve, request, response).catch(() => response.destroy())
  }, host)
  return {
    ...running,
    async close() {
      await close()
      await running.close()
    },
  }
}

interface Serving {
  readonly serve: (request: Request, body: unknown) => Promise<Response>
  readonly close: () => Promise<void>
}

function newServing(tools: readonly McpServerTool[], pageSize: number, json: boolean): Serving {
  const handler = createMcpHandler(() => createMcp(tools, pageSize), {
    legacy: 'reject',
    responseMode: json ? 'json' : 'sse',
  })
  return {
    serve: (request, parsedBody) => handler.fetch(request, { parsedBody }),
    close: () => handler.close(),
  }
}

function oldServing(tools: readonly McpServerTool[], pageSize: number, json: boolean): Serving {
  const sessions = new Map<string, WebStandardStreamableHTTPServerTransport>()
  return {
    async serve(request, parsedBody) {
      let transport = sessions.get(request.headers.get('mcp-session-id') ?? '')
      if (transport === undefined) {
        if (!isInitializeRequest(parsedBody)) return new Response(null, { status: 404 })
        const created = new WebStandardStreamableHTTPServerTransport({
          sessionIdGenerator: randomUUID,
          enableJsonResponse: json,
          onsessioninitialized: id => void sessions.set(id, created),
        })
        transport = created
        await createMcp(tools, pageSize).connect(created)
      }
      return await transport.handleRequest(request, { parsedBody })
    },
    async close() {
      for (const transport of sessions.values()) await transport.close()
    },
  }
}

/** Hands a request of Node, whose body has been read, to a server of the web's kind. */
async function answer(
  serve: Serving['serve'],
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const left = new AbortController()
  response.once('close', () => left.abort())
  const headers = new Headers()
  for (const [name, value] of Object.entries(request.headers)) headers.set(name, String(value))
  const body = (request as { parsedBody?: unknown }).parsedBody
  const asked = new Request(new URL(request.url ?? '', 'http://127.0.0.1'), {
    method: request.method ?? 'GET',
    headers,
    body: request.method === 'POST' ? JSON.stringify(body) : null,
    signal: left.signal,
  })
  const { status, headers: answered, body: stream } = await serve(asked, body)
  response.writeHead(status, Object.fromEntries(answered))
  if (stream === null) response.end()
  else await pipeline(Readable.fromWeb(stream as ReadableStream), response)
}

function createMcp(tools: readonly McpServerTool[], pageSize: number): Server {
  const server = new Server({ name: 'test', version: '1' }, { capabilities: { tools: {} } })
  server.setRequestHandler('tools/list', ({ params }) => {
    const from = Number(params?.cursor ?? 0)
    const next = from + pageSize
    return {
      tools: tools.slice(from, next).map(({ name, description, inputSchema, annotations }) => ({
        name,
        ...(description === undefined ? {} : { description }),
        ...(annotations === undefined ? {} : { annotations }),
        inputSchema: { type: 'object' as const, ...inputSchema },
      })),
      ...(next < tools.length ? { nextCursor: String(next) } : {}),
    }
  })
  server.setRequestHandler('tools/call', async ({ params }, { mcpReq }) => {
    const tool = tools.find(({ name }) => name === params.name)
    if (tool === undefined) throw new Error('no such tool')
    const args = params.arguments ?? {}
    return (
      (await tool.run?.(args, mcpReq.signal)) ?? {
        content: [{ type: 'text', text: `${params.name} ${JSON.stringify(args)}` }],
      }
    )
  })
  return server
}

/** Answers the opening of a session in the old way, and hands everything else to `answer`. */
export function afterOpening(
  answer: (message: ReturnType<typeof messageOf>, response: ServerResponse, request: IncomingMessage) => void,
): RequestListener {
  return (request, response) => {
    const message = messageOf(request)
    if (message.method === 'initialize') {
      sendJson(response, {
        jsonrpc: '2.0',
        id: message.id,
        result: {
          protocolVersion: '2025-06-18',
          capabilities: { tools: {} },
          serverInfo: { name: 'hostile', version: '1' },
        },
      })
    } else if (message.method === 'server/discover') response.writeHead(404).end()
    else if (message.method === 'notifications/initialized') response.writeHead(202).end()
    else answer(message, response, request)
  }
}

export function sendJson(response: ServerResponse, document: unknown): void {
  response.writeHead(200, { 'content-type': 'application/json' })
  response.end(JSON.stringify(document))
}

/** A result as the answer to a message. */
export function sendResult(response: ServerResponse, { id }: { id?: unknown }, result: unknown): void {
  sendJson(response, { jsonrpc: '2.0', id, result })
}
