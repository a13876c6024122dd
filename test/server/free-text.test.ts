/** The one kind of path parameter that may be any text: over raw sockets, because clients tidy paths up. */
import t from 'tap'
import type { Handler } from '../../src/api/operation.ts'
import { createRouter } from '../../src/server/router.ts'
import { exchange, request } from '../support/raw-http.ts'
import { INFERENCE, operation, type Row, startFrontEnd } from './front-end.ts'

const AUTH = { Authorization: INFERENCE }
const show: Handler = ({ params, query }, reply) =>
  reply.json(200, { ...Object.fromEntries(params), ...Object.fromEntries(query) })
const route = (path: string, more: Partial<Row> = {}): Row => ({
  method: 'GET',
  path,
  bodyLimitBytes: 0,
  key: 'inference',
  handler: show,
  ...more,
})

const front = await startFrontEnd(t, [
  route('/texts', { handler: (_request, reply) => reply.json(200, { reached: 'texts' }) }),
  route('/texts/{text}', { freeParam: 'text' }),
  route('/texts/{text}', { freeParam: 'text', method: 'DELETE' }),
  route('/names/{name}'),
  route('/names/{name}/parts'),
  route('/secret', { handler: (_request, reply) => reply.json(200, { reached: 'secret' }) }),
])
const ask = (path: string, method = 'GET') => exchange(front.port, request(method, path, AUTH))

t.test('a free parameter is decoded once and keeps every character', async t => {
  for (const text of [
    'a/b',
    '/',
    '//',
    '/a/',
    'a\\b',
    '\\',
    'a.b',
    '...',
    '.a',
    'a..',
    'a/.../b',
    '100%',
    '%2F',
    '%252F',
    '%00',
    'a?b=c',
    'a#b',
    ' a b ',
    'a+b',
    'a;b',
    'é',
    'e\u0301',
    '😀'.repeat(256),
    '\u202e\u200b\ufeff',
    '__proto__',
    "'; drop table end_users; --",
  ]) {
    for (const base of ['/v1', '/api/v1']) {
      const reply = await ask(`${base}/texts/${encodeURIComponent(text)}`)
      t.equal(reply?.status, 200, encodeURIComponent(text))
      t.same(JSON.parse(reply?.body ?? ''), { text })
    }
  }
  t.equal(JSON.parse((await ask('/v1/texts/%61%2Eb'))?.body ?? '').text, 'a.b', 'needless escapes are undone')
  t.equal(JSON.parse((await ask('/v1/texts/a%2fb'))?.body ?? '').text, 'a/b', 'in either case')
  t.equal((await ask('/v1/texts/a%2Fb', 'DELETE'))?.status, 200, 'with every method of the path')
  t.equal((await ask('/v1/texts/a%2Fb', 'OPTIONS'))?.status, 204)
})

t.test(
  'a segment of dots is refused however it is written, so that nobody in front leaves the template',
  async t => {
    for (const text of [
      '.',
      '..',
      '%2E',
      '%2e%2e',
      '.%2E',
      '%2E.',
      '..%2Fsecret',
      '..%2f..%2fsecret',
      '%2e%2e%2fsecret',
      '..%5Csecret',
      'a%2F..',
      'a%2F..%2Fb',
      'a%5c.%5cb',
      'a%2F%2E%2E',
      '%2F..',
      '..%3Ba%2Fsecret',
      '..;a%2Fsecret',
    ]) {
      const reply = await ask(`/v1/texts/${text}`)
      t.equal(reply?.status, 400, text)
      t.match(reply?.body, /dot segment/, text)
    }
  },
)

t.test('what names nothing is refused', async t => {
  for (const text of ['%00', 'a%00b', '%', '%2', '%zz', '%ff', '%c0%af', '%ed%a0%80', '%F5%80%80%80'])
    t.equal((await ask(`/v1/texts/${text}`))?.status, 400, text)
  t.equal((await ask(`/v1/texts/${'a'.repeat(3072)}`))?.status, 200, 'the longest')
  t.equal((await ask(`/v1/texts/${'a'.repeat(3073)}`))?.status, 400, 'longer than the longest')
  t.equal((await ask('/v1/texts/a/b'))?.status, 404, 'a raw slash separates')
  t.equal((await ask('/v1/texts//'))?.status, 400, 'an empty segment')
})

t.test('a trailing slash is no part of the text', async t => {
  // The interface says that a trailing slash is the same path: this one is the collection.
  t.same(JSON.parse((await ask('/v1/texts/'))?.body ?? ''), { reached: 'texts' })
  for (const text of ['a', 'a/b', '/', 'a/', '\\'])
    t.same(JSON.parse((await ask(`/v1/texts/${encodeURIComponent(text)}/`))?.body ?? ''), { text }, text)
  t.equal((await ask(`/v1/texts/${'a'.repeat(3072)}/`))?.status, 200, 'the longest')
  t.equal((await ask(`/v1/texts/${'a'.repeat(3073)}/`))?.status, 400, 'longer than the longest')
  for (const path of [
    '/v1/texts/%2E%2E/',
    '/v1/texts/..%2Fsecret/',
    '/v1/texts/../',
    '/v1/texts/a//',
    '/v1/texts/%2F//',
    '/v1/texts/%00/',
    '/v1/names/a%2Fb/',
    '/v1/names/a%2F/',
    '/v1/texts%2F/',
  ]) {
    t.equal((await ask(path))?.status, 400, path)
  }
})

t.test('every other path is as strict as before', async t => {
  for (const path of [
    '/v1/names/a%2Fb',
    '/v1/names/a%2fb',
    '/v1/names/a%5Cb',
    '/v1/names/a%2Eb',
    '/v1/names/%2e%2e',
    '/v1/names/a%00b',
    '/v1/names%2Fa',
    '/v1/names/a%2Fb/parts',
    '/v1/names/a%2Fparts',
    '/v1%2Ftexts/a',
    '/v1/texts%2Fa',
    '/v1/%74exts/a%2Fb',
    '/v1/nothing/a%2Fb',
    '/v1/texts/a%2Fb/c',
    '/v1/texts/../texts/a%2Fb',
    '/v1/secret%2F',
    `/v1/names/${'a'.repeat(2048)}`,
  ]) {
    t.equal((await ask(path))?.status, 400, path)
  }
})

t.test('escapes of a query have to be UTF-8', async t => {
  for (const value of ['%ff', '%c0%af', '%ed%a0%80', 'a%80', '%e2%82'])
    t.equal((await ask(`/v1/names/a?b=${value}`))?.status, 400, value)
  const reply = await ask('/v1/names/a?b=%F0%9F%98%80%2F..%2F%C3%A9')
  t.equal(JSON.parse(reply?.body ?? '').b, '😀/../é')
})

t.test('a free parameter has to end its path, for all of its methods', async t => {
  t.throws(() => createRouter([operation(route('/a/{b}/{c}', { freeParam: 'b' }))]), /free parameter/)
  t.throws(() => createRouter([operation(route('/a/{b}', { freeParam: 'c' }))]), /free parameter/)
  t.throws(
    () =>
      createRouter([
        operation(route('/a/{b}', { freeParam: 'b' })),
        operation(route('/a/{b}', { method: 'DELETE' })),
      ]),
    /free parameter/,
  )
})
