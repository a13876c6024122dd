/** The contract of the public port once more, on the front of `node:http`: the files that depend on a front. */
import { importTests } from '../support/suite.ts'

/** Streams, bodies, aborts, sockets, uploads, SDKs of clients. What lies behind the front is tested once. */
const FILES = [
  'abort',
  'account',
  'bad-requests',
  'chat-completions',
  'chat-completions-sdk',
  'chat-relay',
  'embeddings-hostile',
  'embeddings-sdk',
  'files',
  'hostile-replies',
  'keys',
  'large-events',
  'leaving-callers',
  'gemini',
  'messages',
  'messages-sdk',
  'openai-sdk',
  'openrouter-sdk',
  'reading-models',
  'responses',
  'resumable-edges',
  'resumable-streams',
  'stream-borders',
  'unread-answers',
  'websocket',
  'websocket-bounds',
  'websocket-memory',
]

process.env['TEST_FRONT'] = 'node'
await importTests(import.meta.dirname, file => FILES.includes(file.replace('.test.ts', '')))
