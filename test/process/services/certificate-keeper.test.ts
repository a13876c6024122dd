/** The watch of the certificate: real files, as they are replaced by people, by certbot and by Kubernetes. */
import { mkdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { CertificateKeeper } from '../../../src/process/services/certificate-keeper.ts'
import { certificateVersion } from '../../../src/server/certificate.ts'
import { selfSigned } from '../../providers/upstream/self-signed.ts'
import { certificateFiles } from '../../support/over-tls.ts'
import { turns } from '../../support/raw-http.ts'
import { tempFolder } from '../../support/temp-folder.ts'
import { TestClock } from '../../support/test-clock.ts'

const pair = () => selfSigned(['localhost'], true)

async function start(t: Test, files = certificateFiles()) {
  const clock = new TestClock()
  const taken: string[] = []
  const notices: unknown[] = []
  const errors: string[] = []
  const threads = { take: true as boolean | 'never' }
  const keeper = new CertificateKeeper({
    files,
    clock,
    log: {
      notice: (_, message, fields) => void notices.push([message, fields]),
      error: (_, message) => void errors.push(message),
    },
    onChange: version => {
      if (threads.take === 'never') return new Promise(() => undefined)
      if (threads.take) taken.push(version)
      return Promise.resolve(threads.take)
    },
  })
  t.teardown(() => keeper.close())
  /** One look of the watch. */
  const look = async () => {
    clock.advance(1_000)
    await turns(5)
  }
  return { keeper, files, clock, taken, notices, errors, threads, look }
}

t.test('a changed pair is taken at the next look, and told once', async t => {
  const { keeper, files, taken, notices, errors, look } = await start(t)
  await look()
  t.same(taken, [], 'nothing has changed')
  const next = selfSigned(['localhost'], true, { from: '200101000000Z', until: '300101000000Z' })
  writeFileSync(files.cert, next.cert)
  writeFileSync(files.key, next.key)
  await look()
  await look()
  t.same(taken, [certificateVersion(files)])
  t.same(notices, [['certificate reloaded', { expires: '2030-01-01T00:00:00.000Z' }]])
  t.equal(keeper.expiresAtMs, Date.UTC(2030, 0, 1))
  t.same(keeper.reloads, { taken: 1, refused: 0 })
  t.same(errors, [])
})

t.test('files that are renamed into place are seen', async t => {
  const { files, taken, look } = await start(t)
  const next = pair()
  for (const [name, text] of [
    [files.key, next.key],
    [files.cert, next.cert],
  ] as const) {
    writeFileSync(`${name}.new`, text)
    renameSync(`${name}.new`, name)
  }
  await look()
  t.same(taken, [certificateVersion(files)])
})

t.test('a symbolic link that is swapped, as Kubernetes does, is seen', async t => {
  const folder = tempFolder('sluice-tls')
  const mount = (name: string) => {
    const { cert, key } = pair()
    mkdirSync(join(folder, name))
    writeFileSync(join(folder, name, 'tls.crt'), cert)
    writeFileSync(join(folder, name, 'tls.key'), key)
    symlinkSync(name, join(folder, 'data.new'))
    renameSync(join(folder, 'data.new'), join(folder, '..data'))
  }
  mount('first')
  for (const name of ['tls.crt', 'tls.key']) symlinkSync(join('..data', name), join(folder, name))
  const { files, taken, look } = await start(t, {
    cert: join(folder, 'tls.crt'),
    key: join(folder, 'tls.key'),
  })
  mount('second')
  await look()
  t.same(taken, [certificateVersion(files)])
})

t.test('a pair that is half written waits for its other half without a word', async t => {
  const { files, taken, errors, look } = await start(t)
  const next = pair()
  writeFileSync(files.cert, next.cert)
  await look()
  t.same([taken, errors], [[], []])
  writeFileSync(files.key, next.key)
  await look()
  t.same([taken, errors], [[certificateVersion(files)], []])
})

t.test('a pair that stays faulty is an error once, and what was there before stays', async t => {
  const { keeper, files, taken, errors, look } = await start(t)
  const { expiresAtMs } = keeper
  writeFileSync(files.key, pair().key)
  for (let looks = 0; looks < 4; looks++) await look()
  const told =
    /certificate not reloaded; still using the old one: listen\.tls\.key: \S+tls\.key: is not the private key/
  t.match(errors, [told])
  t.equal(errors.length, 1)
  t.same(keeper.reloads, { taken: 0, refused: 1 })
  t.same(taken, [])
  t.equal(keeper.expiresAtMs, expiresAtMs)
  const next = pair()
  writeFileSync(files.cert, next.cert)
  writeFileSync(files.key, next.key)
  await look()
  t.equal(taken.length, 1, 'it is mended')
})

t.test('a pair that is refused because the clock is behind is taken once the clock is right', async t => {
  const { keeper, files, clock, taken, errors, look } = await start(t)
  const from = new Date(clock.nowMs() + 3_000_000).toISOString().replace(/[-:T]/g, '').slice(2, 14)
  const next = selfSigned(['localhost'], true, { from: `${from}Z`, until: '491231235959Z' })
  writeFileSync(files.cert, next.cert)
  writeFileSync(files.key, next.key)
  for (let looks = 0; looks < 150; looks++) await look()
  t.match(errors, [/is not valid before/])
  t.same([errors.length, taken, keeper.reloads], [1, [], { taken: 0, refused: 1 }], 'it is logged once')
  clock.jump(3_600_000)
  for (let looks = 0; looks < 60; looks++) await look()
  t.same(taken, [certificateVersion(files)])
})

t.test('who asks is told of a fault at once', async t => {
  const { keeper, files, errors } = await start(t)
  writeFileSync(files.cert, 'nothing of the kind')
  await keeper.reload()
  t.match(errors, [/listen\.tls\.cert: \S+tls\.crt: is not a PEM file with a certificate/])
})

t.test('files that threads could not take are looked at again, and then refused', async t => {
  const { keeper, files, threads, taken, errors, look } = await start(t)
  threads.take = false
  const next = pair()
  writeFileSync(files.cert, next.cert)
  writeFileSync(files.key, next.key)
  await look()
  t.same(errors, [])
  threads.take = true
  await look()
  t.equal(taken.length, 1, 'they only changed meanwhile')
  threads.take = false
  const last = pair()
  writeFileSync(files.cert, last.cert)
  writeFileSync(files.key, last.key)
  await look()
  await look()
  await look()
  t.match(errors, [/the HTTP library cannot use these files/])
  t.same(keeper.reloads, { taken: 1, refused: 1 })
})

t.test('a thread that hangs does not hold the watch up', async t => {
  const { keeper, files, clock, threads } = await start(t)
  threads.take = 'never'
  const next = pair()
  writeFileSync(files.cert, next.cert)
  writeFileSync(files.key, next.key)
  const reloaded = keeper.reload()
  await turns(5)
  clock.advance(5_000)
  await reloaded
  t.same(keeper.reloads, { taken: 1, refused: 0 })
})

t.test('a faulty pair stops the start', async t => {
  const files = certificateFiles({ cert: pair().cert, key: pair().key })
  await t.rejects(start(t, files), {
    message: `listen.tls.key: ${files.key}: is not the private key of the first certificate of listen.tls.cert`,
  })
})
