import t from 'tap'
import { createDataRegions } from '../../src/api/request-facts.ts'

t.test('only configured hosts have a region, whatever their case, port or final dot', async t => {
  const regionOf = createDataRegions({ europe: ['eu.gateway.test', 'Local:8443'], us: ['us.gateway.test'] })
  for (const host of [
    'eu.gateway.test',
    'EU.Gateway.Test',
    'eu.gateway.test:8080',
    'eu.gateway.test.:8080',
  ]) {
    t.equal(regionOf(host), 'europe', host)
  }
  t.equal(regionOf('us.gateway.test'), 'us')
  t.equal(regionOf('local:8443'), 'europe')
  for (const host of [
    'local',
    'local:8080',
    'gateway.test',
    'x.eu.gateway.test',
    'eu.gateway.test.evil',
    '',
  ]) {
    t.equal(regionOf(host), null, host)
  }
})

t.test('without a configured host data may go anywhere', async t => {
  t.equal(createDataRegions({ europe: [], us: [] })('eu.localhost'), null)
})
