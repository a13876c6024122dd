/** An MCP server on standard input and output with one tool, for programs that search for their tools. */
import { createInterface } from 'node:readline'

interface Message {
  readonly id?: number | string
  readonly method?: string
  readonly params?: { readonly protocolVersion?: string }
}

const TOOL = {
  name: 'count_cups',
  description: 'Counts the cups of tea on a shelf.',
  inputSchema: { type: 'object', properties: { shelf: { type: 'string' } }, required: ['shelf'] },
}

const RESULTS: Readonly<Record<string, (params: Message['params']) => object>> = {
  initialize: params => ({
    protocolVersion: params?.protocolVersion ?? '2025-06-18',
    capabilities: { tools: {} },
    serverInfo: { name: 'tea', version: '1.0.0' },
  }),
  ping: () => ({}),
  'tools/list': () => ({ tools: [TOOL] }),
  'tools/call': () => ({ content: [{ type: 'text', text: 'There are cups-3307 here.' }] }),
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method = '', params } = JSON.parse(line) as Message
  if (id === undefined) continue
  const result = RESULTS[method]?.(params)
  const answer = result === undefined ? { error: { code: -32_601, message: 'Unknown method' } } : { result }
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, ...answer })}\n`)
}
