import t from 'tap'
import { ConfigError } from '../../../src/base/settings/check.ts'
import { loadConfig } from '../../../src/process/config/config.ts'
import { createCatalog } from '../../../src/providers/catalog.ts'

const of = (environment: Record<string, string>) => {
  const { httpsProxy, httpProxy, noProxy } = loadConfig([], environment)
  return [httpsProxy, httpProxy, noProxy]
}

t.test('proxies stand in the environment, in upper or lower case; lower case wins', t => {
  t.same(of({}), [null, null, null])
  t.same(of({ HTTPS_PROXY: 'http://a:1', HTTP_PROXY: 'b:2', NO_PROXY: '*' }), ['http://a:1', 'b:2', '*'])
  t.same(of({ https_proxy: 'http://a:1', http_proxy: 'https://b', no_proxy: 'x,y' }), [
    'http://a:1',
    'https://b',
    'x,y',
  ])
  t.same(of({ https_proxy: 'http://low:1', HTTPS_PROXY: 'http://up:1' }), ['http://low:1', null, null])
  t.same(of({ https_proxy: '', HTTPS_PROXY: 'http://up:1' }), ['http://up:1', null, null], 'empty is not set')
  t.end()
})

t.test('a proxy that is none names its variable or field, and is not repeated', t => {
  for (const bad of [
    'socks5://secret:1',
    'ftp://secret',
    'http://secret/path',
    'http://u:se%ret@x',
    'http://',
    'a secret',
  ]) {
    t.throws(
      () => loadConfig([], { HTTPS_PROXY: bad }),
      {
        name: 'ConfigError',
        message: /^HTTPS_PROXY: expected a URL of the form http:\/\/\[USER:PASSWORD@\]HOST:PORT or https/,
      },
      bad,
    )
    try {
      loadConfig([], { http_proxy: bad })
    } catch (error) {
      t.ok(error instanceof ConfigError && error.message.startsWith('http_proxy: '))
      t.notMatch((error as Error).message, /secret|se%ret/)
    }
    t.throws(
      () => createCatalog({ providers: [{ slug: 'openai', proxy: bad }], models: [] }),
      { name: 'ConfigError', message: /^providers\[0\]\.proxy: expected a URL/ },
      bad,
    )
  }
  t.end()
})

t.test('what a row says about the way out', t => {
  const tls = { ca: 'CA', cert: null, key: null }
  const readTls = (files: object, path: string) => {
    if ('key' in files) throw new ConfigError(`${path}.key: cannot be read`)
    return tls
  }
  const egressOf = (row: object) =>
    createCatalog({ providers: [{ slug: 'openai', ...row }], models: [], readTls }).provider('openai')?.egress
  t.equal(egressOf({}), undefined)
  t.equal(egressOf({ transport: 'direct', http2: false }), undefined)
  const plain = { transport: 'direct', proxy: null, http2: false, tls: null }
  t.same(egressOf({ proxy: 'none' }), { ...plain, proxy: 'none' })
  t.same(egressOf({ proxy: 'proxy:3128' }), { ...plain, proxy: 'proxy:3128' })
  t.same(egressOf({ transport: 'undici', http2: true }), { ...plain, transport: 'undici', http2: true })
  t.same(egressOf({ tls: { ca: 'file' } }), { ...plain, tls })
  t.throws(() => egressOf({ tls: { key: 'file' } }), { message: 'providers[0].tls.key: cannot be read' })
  t.end()
})
