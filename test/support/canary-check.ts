/** What `sluice check` does to each of many files, in one process: one line for what is wrong with each. */
import { loadConfig } from '../../src/config/config.ts'
import { buildCatalog } from '../../src/threads/build/catalog.ts'
import { startFailure } from '../../src/threads/start/start-failure.ts'

for (const file of process.argv.slice(2)) {
  try {
    buildCatalog(loadConfig(['--config', file], {}), null)
    process.stdout.write(`${file} is good\n`)
  } catch (error) {
    const failure = startFailure(error)
    if (failure === null) throw error
    process.stdout.write(`${failure.lines.join(' | ')}\n`)
  }
}
