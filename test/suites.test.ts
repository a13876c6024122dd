import { existsSync, globSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { PROCESS_FILES } from './contract/processes.ts'

const HERE = import.meta.dirname

t.test('every folder with tests has a suite that runs them', async t => {
  const folders = new Set(globSync('*/**/*.test.ts', { cwd: HERE }).map(file => file.split('/')[0] ?? ''))
  folders.delete('heavy')
  t.ok(folders.size > 20)
  for (const folder of folders)
    t.ok(existsSync(join(HERE, folder, 'all.suite.ts')), `test/${folder}/all.suite.ts`)
})

t.test('the files named for the suite of processes are there', async t => {
  for (const file of PROCESS_FILES) t.ok(existsSync(join(HERE, 'contract', file)), file)
})
