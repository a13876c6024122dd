import t from 'tap'
import type { Handler } from '../../src/api/operation.ts'
import { createRouter } from '../../src/server/router.ts'
import { noSuchOperation } from '../../src/server/unknown-path.ts'
import { allOperations } from '../support/operations.ts'
import { exchange, request } from '../support/raw-http.ts'
import { INFERENCE, MANAGEMENT, startFrontEnd } from './front-end.ts'

const router = createRouter(await allOperations(t))
const told = (path: string): string => noSuchOperation(path, router).message

t.test('a path without an operation is answered with the one that was probably meant', t => {
  const cases: readonly (readonly [path: string, says: RegExp])[] = [
    ['/responses', /did you mean POST \/v1\/responses\? The base URL of a client has to end in \/v1$/],
    ['/chat/completions', /did you mean POST \/v1\/chat\/completions\?/],
    ['/v1/response', /did you mean POST \/v1\/responses\?$/],
    ['/v1/chat/completion', /did you mean POST \/v1\/chat\/completions\?$/],
    ['/v1/workspace', /did you mean GET or POST \/v1\/workspaces\?$/],
    ['/v1/batch', /did you mean POST or GET \/v1\/batches\?$/],
    ['/v1/audio/speech', /\/v1\/audio is not offered by this gateway$/],
    ...['assistants', 'threads', 'fine_tuning', 'mcp', 'a2a', 'ocr', 'tokenize', 'prompts'].map(
      name => [`/v1/${name}`, new RegExp(`/v1/${name} is not offered by this gateway$`)] as const,
    ),
    ['/v1/vector_stores/vs_1/files', /\/v1\/vector_stores is not offered/],
    ['/v1/chat/completions/chatcmpl_1/messages', /chat completions are not stored/],
    ['/v1/file', /did you mean POST or GET \/v1\/files\?$/],
    ['/v1/embedding', /did you mean POST \/v1\/embeddings\?$/],
    [
      '/v1/messages/nothing',
      /below \/v1\/messages there are only count_tokens, batches, and GET \/v1\/messages\/\{id\}/,
    ],
    ['/messages', /did you mean POST \/v1\/messages\?/],
    ['/v1/responses/resp_1/cancel', /responses are not stored/],
    ['/v1/responses/resp_1/input_items', /compact, input_tokens, and GET \/v1\/responses\/\{id\}/],
    ['/', /the base URL of a client has to end in \/v1$/],
    ['/healthz', /on the admin port$/],
    ['/v1', /^No such operation$/],
    ['/something', /paths begin with \/v1$/],
    ['/v1/entirely-different', /^No such operation$/],
    ['/v1/constructor', /^No such operation$/],
    ['/v1/__proto__/x', /^No such operation$/],
    [`/v1/${'responses'.repeat(200)}`, /^No such operation$/],
  ]
  for (const [path, says] of cases) t.match(told(path), says, path.slice(0, 60))
  for (const path of ['/v1/sk-secret', '/sk-secret', '/v1/files/sk-secret', '/v1/responses/sk-secret'])
    t.notMatch(told(path), /secret/, 'what was sent is not repeated')
  t.end()
})

t.test('a key may come in a header of its own, for either kind of operation', async t => {
  const greet: Handler = ({ key }, reply) => reply.json(200, { kind: key.kind })
  const front = await startFrontEnd(t, [
    { method: 'GET', path: '/things', bodyLimitBytes: 0, key: 'inference', handler: greet },
    { method: 'GET', path: '/managed', bodyLimitBytes: 0, key: 'management', handler: greet },
  ])
  const ask = async (path: string, headers: Record<string, string>) =>
    (await exchange(front.port, request('GET', path, headers)))?.status
  const bare = (authorization: string) => authorization.replace('Bearer ', '')
  t.equal(await ask('/v1/things', { 'X-Api-Key': bare(INFERENCE) }), 200)
  t.equal(await ask('/v1/managed', { 'X-Api-Key': bare(MANAGEMENT) }), 200)
  t.equal(await ask('/v1/things', { 'X-Api-Key': bare(MANAGEMENT) }), 403)
  t.equal(await ask('/v1/things', { 'X-Api-Key': 'nonsense' }), 401)
  t.equal(await ask('/v1/things', { 'X-Api-Key': '' }), 401)
  t.equal(await ask('/v1/things', { 'X-Api-Key': bare(INFERENCE), Authorization: 'Bearer nonsense' }), 401)
})
