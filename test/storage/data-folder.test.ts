import { existsSync, mkdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { dataFolder, makeFolder, storageLocation, unwritable } from '../../src/storage/data-folder.ts'

t.test('missing folders are made for their owner alone, and those that are there stay', async t => {
  const root = t.testdir({})
  makeFolder(join(root, 'a/b/c'))
  for (const path of ['a', 'a/b', 'a/b/c']) t.equal(statSync(join(root, path)).mode & 0o777, 0o700)
  mkdirSync(join(root, 'open'), { mode: 0o755 })
  makeFolder(join(root, 'open'))
  t.not(statSync(join(root, 'open')).mode & 0o777, 0o700)
  t.equal(dataFolder(`sqlite:${join(root, 'a/x.db')}`), join(root, 'a'))
})

t.test('a place where no folder can be ends at once', async t => {
  const root = t.testdir({ file: '' })
  t.throws(() => makeFolder(join(root, 'file/below')), { code: /ENOTDIR|EEXIST/ })
  if (!existsSync('/proc/self')) return
  t.throws(() => makeFolder('/proc/no-such-folder/deeper'), { code: 'ENOENT' })
})

t.test('a file that cannot be made: who, where, and what to do', async t => {
  const { username } = (await import('node:os')).userInfo()
  const text = unwritable('data/vault.key', 'EACCES')
  t.ok(
    text.startsWith(
      `${join(process.cwd(), 'data/vault.key')}: cannot be created (EACCES): user ${username} (`,
    ),
  )
  t.match(text, 'may not write there. Give that user the folder ')
  t.match(text, 'storage.url or DATABASE_URL')
  t.match(unwritable('/x/y', null), /^\/x\/y: cannot be created \(unknown\)$/)
})

t.test('places name no user, no password and no parameter', async t => {
  for (const [url, place] of [
    ['redis://:s3cret@redis.internal:6380/2', 'redis.internal:6380/2'],
    ['rediss://user:s3cret@redis.internal', 'redis.internal:6379'],
    ['postgres://sluice:s3cret@db/sluice?sslpassword=s3cret', 'db:5432/sluice'],
    ['postgresql:///sluice?host=/run/postgresql', '/run/postgresql:5432/sluice'],
    ['postgres://[::1]:6000/x', '[::1]:6000/x'],
    ['sqlite:./data/gateway.db', './data/gateway.db'],
    ['postgres://a:s3cret@[broken', 'an unreadable address'],
    ['postgres://a:1/s3cret@127.0.0.1/db', 'an unreadable address'],
    ['postgres://a:1?s3cret@127.0.0.1/db', 'an unreadable address'],
  ] as const)
    t.equal(storageLocation(url), place)
})
