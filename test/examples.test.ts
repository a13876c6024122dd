import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'

const EXAMPLES = join(import.meta.dirname, '../examples')

const missing = (command: string): string | false =>
  spawnSync(command, ['-v']).error === undefined ? false : `${command} is not installed`

/** A certificate with its key, made for this test. */
function certificate(folder: string): { readonly pem: string; readonly key: string; readonly both: string } {
  const [key, pem, both] = [join(folder, 'key.pem'), join(folder, 'cert.pem'), join(folder, 'both.pem')]
  const words = [
    'req',
    '-x509',
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-subj',
    '/CN=test',
    '-keyout',
    key,
    '-out',
    pem,
  ]
  const made = spawnSync('openssl', words)
  if (made.status !== 0) throw new Error(made.stderr.toString())
  writeFileSync(both, readFileSync(pem, 'utf8') + readFileSync(key, 'utf8'))
  return { pem, key, both }
}

t.test('nginx takes its example', { skip: missing('nginx') }, async t => {
  const folder = t.testdir({})
  const { pem, key } = certificate(folder)
  const example = readFileSync(join(EXAMPLES, 'nginx.conf'), 'utf8')
    .replace('/etc/ssl/certs/gateway.pem', pem)
    .replace('/etc/ssl/private/gateway.key', key)
  const file = join(folder, 'nginx.conf')
  writeFileSync(file, `pid ${folder}/pid; events {}\nhttp {\naccess_log off;\n${example}}\n`)
  const { status, stderr } = spawnSync('nginx', ['-t', '-c', file, '-e', join(folder, 'errors')], {
    encoding: 'utf8',
  })
  t.equal(status, 0, stderr)
})

t.test('HAProxy takes its example', { skip: missing('haproxy') }, async t => {
  const folder = t.testdir({})
  const example = readFileSync(join(EXAMPLES, 'haproxy.cfg'), 'utf8').replace(
    '/etc/haproxy/gateway.pem',
    certificate(folder).both,
  )
  const file = join(folder, 'haproxy.cfg')
  writeFileSync(file, example)
  const { status, stderr } = spawnSync('haproxy', ['-c', '-f', file], { encoding: 'utf8' })
  t.equal(status, 0, stderr)
})
