// A reporter for jest: one line of JSON for each test file, as soon as it has ended (tests/client_suites.py reads it).
const fs = require('fs')

module.exports = class Lines {
  onTestResult(test, result) {
    const tests = result.testResults.map(({ fullName, status, failureMessages }) => ({
      fullName,
      status,
      error: (failureMessages || []).join('\n').slice(0, 600),
    }))
    const row = { file: test.path, error: result.failureMessage && !tests.length ? 'the file failed' : '', tests }
    fs.appendFileSync(process.env.HARROW_RESULTS, JSON.stringify(row) + '\n')
  }
}
