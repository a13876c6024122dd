/** A real MCP server over HTTP, made with the official library; and servers that say whatever a test gives them. */
import { randomUUID } from 'node:crypto'
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { Server } from '@modelcontextprotocol/sdk/server/index.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import {
  CallToolRequestSchema,
  type CallToolResult,
  isInitializeRequest,
  ListToolsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js'

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
  readonly host?: string
}

export interface McpRequest {
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
  pageSize,
  json = false,
  host,
}: McpServerOptions): Promise<RunningServer> {
  const sessions = new Map<string, StreamableHTTPServerTransport>()
  const listener = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = (request as { parsedBody?: unknown }).parsedBody
    const session = request.headers['mcp-session-id']
    let transport = typeof session === 'string' ? sessions.get(session) : undefined
    if (transport === undefined) {
      if (!isInitializeRequest(body)) {
        response.writeHead(404).end()
        return
      }
      const created = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        enableJsonResponse: json,
        onsessioninitialized: id => void sessions.set(id, created),
      })
      transport = created
      await createMcp(tools, pageSize ?? tools.length).connect(created as never)
    }
    await transport.handleRequest(request, response, body)
  }
  const running = await startHttp((request, response) => void listener(request, response), host)
  return {
    ...running,
    async close() {
      for (const transport of sessions.values()) await transport.close()
      await running.close()
    },
  }
}

function createMcp(tools: readonly McpServerTool[], pageSize: number): Server {
  const server = new Server({ name: 'test', version: '1' }, { capabilities: { tools: {} } })
  server.setRequestHandler(ListToolsRequestSchema, ({ params }) => {
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
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, { signal }) => {
    const tool = tools.find(({ name }) => name === params.name)
    if (tool === undefined) throw new Error('no such tool')
    const args = params.arguments ?? {}
    return (
      (await tool.run?.(args, signal)) ?? {
        content: [{ type: 'text', text: `${params.name} ${JSON.stringify(args)}` }],
      }
    )
  })
  return server
}

/** Answers the opening of a session, and hands everything else to `answer`. */
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
    } else if (message.method === 'notifications/initialized') response.writeHead(202).end()
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
