export default { serverDir: './' };
