import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { connectionCap, descriptorLimit } from '../../../src/process/wiring/operating-system.ts'
import { tempFolder } from '../../support/temp-folder.ts'

t.test('the limit of the process is read where the system tells it', async t => {
  const path = join(tempFolder('sluice-limits'), 'limits')
  writeFileSync(
    path,
    'Max processes  100  100  processes\nMax open files            1024                 4096                 files\n',
  )
  t.equal(descriptorLimit(path), 1024, 'the soft one is in force')
  writeFileSync(path, 'Max open files            unlimited            unlimited            files\n')
  t.equal(descriptorLimit(path), null)
  t.equal(descriptorLimit(`${path}.missing`), null)
  if (process.platform === 'linux') t.ok((descriptorLimit() ?? 0) > 0)
})

t.test('connections are capped so that each can have one to a provider', async t => {
  t.equal(connectionCap(20_000, null), 20_000)
  t.equal(connectionCap(20_000, 65_536), 20_000)
  t.equal(connectionCap(20_000, 1_000), 450)
  t.equal(connectionCap(100, 1_000), 100)
  t.equal(connectionCap(100, 1), 1)
})
