#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0, 0)>
#map2 = affine_map<(d0, d1) -> (d1)>
#map3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map4 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map5 = affine_map<(d0, d1, d2) -> (d0, d1, 0)>
module {
  func.func @transformer_block(%arg0: tensor<64x128xf32>, %arg1: tensor<128xf32>, %arg2: tensor<128xf32>, %arg3: tensor<384x128xf32>, %arg4: tensor<128x128xf32>, %arg5: tensor<512x128xf32>, %arg6: tensor<128x512xf32>) -> tensor<64x128xf32> {
    %c0_i64 = arith.constant 0 : i64
    %cst = arith.constant 0.000000e+00 : f64
    %cst_0 = arith.constant 0.000000e+00 : f32
    %cst_1 = arith.constant 0xFF800000 : f32
    %cst_2 = arith.constant 1.000000e+00 : f32
    %cst_3 = arith.constant 0.17677669529663689 : f64
    %cst_4 = arith.constant 1.000000e-05 : f64
    %cst_5 = arith.constant 1.280000e+02 : f64
    %cst_6 = arith.constant 1.280000e+02 : f32
    %0 = tensor.empty() : tensor<64x128xf64>
    %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<64x128xf32>) outs(%0 : tensor<64x128xf64>) {
    ^bb0(%in: f32, %out: f64):
      %75 = arith.extf %in : f32 to f64
      linalg.yield %75 : f64
    } -> tensor<64x128xf64>
    %2 = tensor.empty() : tensor<64x1xf64>
    %3 = linalg.fill ins(%cst : f64) outs(%2 : tensor<64x1xf64>) -> tensor<64x1xf64>
    %4 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%1 : tensor<64x128xf64>) outs(%3 : tensor<64x1xf64>) {
    ^bb0(%in: f64, %out: f64):
      %75 = arith.addf %in, %out : f64
      linalg.yield %75 : f64
    } -> tensor<64x1xf64>
    %5 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%4 : tensor<64x1xf64>) outs(%2 : tensor<64x1xf64>) {
    ^bb0(%in: f64, %out: f64):
      %75 = arith.divf %in, %cst_5 : f64
      linalg.yield %75 : f64
    } -> tensor<64x1xf64>
    %6 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%1, %5 : tensor<64x128xf64>, tensor<64x1xf64>) outs(%0 : tensor<64x128xf64>) {
    ^bb0(%in: f64, %in_20: f64, %out: f64):
      %75 = arith.subf %in, %in_20 : f64
      linalg.yield %75 : f64
    } -> tensor<64x128xf64>
    %7 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%6, %6 : tensor<64x128xf64>, tensor<64x128xf64>) outs(%0 : tensor<64x128xf64>) {
    ^bb0(%in: f64, %in_20: f64, %out: f64):
      %75 = arith.mulf %in, %in_20 : f64
      linalg.yield %75 : f64
    } -> tensor<64x128xf64>
    %8 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%7 : tensor<64x128xf64>) outs(%3 : tensor<64x1xf64>) {
    ^bb0(%in: f64, %out: f64):
      %75 = arith.addf %in, %out : f64
      linalg.yield %75 : f64
    } -> tensor<64x1xf64>
    %9 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%8 : tensor<64x1xf64>) outs(%2 : tensor<64x1xf64>) {
    ^bb0(%in: f64, %out: f64):
      %75 = arith.divf %in, %cst_5 : f64
      linalg.yield %75 : f64
    } -> tensor<64x1xf64>
    %10 = tensor.empty() : tensor<64x1xf32>
    %11 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%9 : tensor<64x1xf64>) outs(%10 : tensor<64x1xf32>) {
    ^bb0(%in: f64, %out: f32):
      %75 = arith.truncf %in : f64 to f32
      linalg.yield %75 : f32
    } -> tensor<64x1xf32>
    %12 = linalg.fill ins(%cst_0 : f32) outs(%10 : tensor<64x1xf32>) -> tensor<64x1xf32>
    %13 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%arg0 : tensor<64x128xf32>) outs(%12 : tensor<64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %75 = arith.addf %in, %out : f32
      linalg.yield %75 : f32
    } -> tensor<64x1xf32>
    %14 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%13 : tensor<64x1xf32>) outs(%10 : tensor<64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %75 = arith.divf %in, %cst_6 : f32
      linalg.yield %75 : f32
    } -> tensor<64x1xf32>
    %15 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%11 : tensor<64x1xf32>) outs(%10 : tensor<64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %75 = arith.truncf %cst_4 : f64 to f32
      %76 = arith.addf %in, %75 : f32
      linalg.yield %76 : f32
    } -> tensor<64x1xf32>
    %16 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%15 : tensor<64x1xf32>) outs(%10 : tensor<64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %75 = math.rsqrt %in : f32
      linalg.yield %75 : f32
    } -> tensor<64x1xf32>
    %17 = tensor.empty() : tensor<64x128xf32>
    %18 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %14 : tensor<64x128xf32>, tensor<64x1xf32>) outs(%17 : tensor<64x128xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %75 = arith.subf %in, %in_20 : f32
      linalg.yield %75 : f32
    } -> tensor<64x128xf32>
    %19 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%18, %16 : tensor<64x128xf32>, tensor<64x1xf32>) outs(%17 : tensor<64x128xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %75 = arith.mulf %in, %in_20 : f32
      linalg.yield %75 : f32
    } -> tensor<64x128xf32>
    %20 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%19, %arg1 : tensor<64x128xf32>, tensor<128xf32>) outs(%17 : tensor<64x128xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %75 = arith.mulf %in, %in_20 : f32
      linalg.yield %75 : f32
    } -> tensor<64x128xf32>
    %21 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%20, %arg2 : tensor<64x128xf32>, tensor<128xf32>) outs(%17 : tensor<64x128xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %75 = arith.addf %in, %in_20 : f32
      linalg.yield %75 : f32
    } -> tensor<64x128xf32>
    %22 = tensor.empty() : tensor<128x384xf32>
    %transposed = linalg.transpose ins(%arg3 : tensor<384x128xf32>) outs(%22 : tensor<128x384xf32>) permutation = [1, 0] 
    %23 = tensor.empty() : tensor<64x384xf32>
    %24 = linalg.fill ins(%cst_0 : f32) outs(%23 : tensor<64x384xf32>) -> tensor<64x384xf32>
    %25 = linalg.matmul ins(%21, %transposed : tensor<64x128xf32>, tensor<128x384xf32>) outs(%24 : tensor<64x384xf32>) -> tensor<64x384xf32>
    %expanded = tensor.expand_shape %25 [[0], [1, 2, 3]] output_shape [64, 3, 4, 32] : tensor<64x384xf32> into tensor<64x3x4x32xf32>
    %extracted_slice = tensor.extract_slice %expanded[0, 0, 0, 0] [64, 1, 4, 32] [1, 1, 1, 1] : tensor<64x3x4x32xf32> to tensor<64x1x4x32xf32>
    %collapsed = tensor.collapse_shape %extracted_slice [[0, 1], [2], [3]] : tensor<64x1x4x32xf32> into tensor<64x4x32xf32>
    %26 = tensor.empty() : tensor<4x64x32xf32>
    %transposed_7 = linalg.transpose ins(%collapsed : tensor<64x4x32xf32>) outs(%26 : tensor<4x64x32xf32>) permutation = [1, 0, 2] 
    %extracted_slice_8 = tensor.extract_slice %expanded[0, 1, 0, 0] [64, 1, 4, 32] [1, 1, 1, 1] : tensor<64x3x4x32xf32> to tensor<64x1x4x32xf32>
    %collapsed_9 = tensor.collapse_shape %extracted_slice_8 [[0, 1], [2], [3]] : tensor<64x1x4x32xf32> into tensor<64x4x32xf32>
    %extracted_slice_10 = tensor.extract_slice %expanded[0, 2, 0, 0] [64, 1, 4, 32] [1, 1, 1, 1] : tensor<64x3x4x32xf32> to tensor<64x1x4x32xf32>
    %collapsed_11 = tensor.collapse_shape %extracted_slice_10 [[0, 1], [2], [3]] : tensor<64x1x4x32xf32> into tensor<64x4x32xf32>
    %transposed_12 = linalg.transpose ins(%collapsed_11 : tensor<64x4x32xf32>) outs(%26 : tensor<4x64x32xf32>) permutation = [1, 0, 2] 
    %27 = tensor.empty() : tensor<4x32x64xf32>
    %transposed_13 = linalg.transpose ins(%collapsed_9 : tensor<64x4x32xf32>) outs(%27 : tensor<4x32x64xf32>) permutation = [1, 2, 0] 
    %28 = tensor.empty() : tensor<4x64x64xf32>
    %29 = linalg.fill ins(%cst_0 : f32) outs(%28 : tensor<4x64x64xf32>) -> tensor<4x64x64xf32>
    %30 = linalg.batch_matmul ins(%transposed_7, %transposed_13 : tensor<4x64x32xf32>, tensor<4x32x64xf32>) outs(%29 : tensor<4x64x64xf32>) -> tensor<4x64x64xf32>
    %31 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%30 : tensor<4x64x64xf32>) outs(%28 : tensor<4x64x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %75 = arith.truncf %cst_3 : f64 to f32
      %76 = arith.mulf %in, %75 : f32
      linalg.yield %76 : f32
    } -> tensor<4x64x64xf32>
    %32 = tensor.empty() : tensor<4x64xi64>
    %33 = linalg.fill ins(%c0_i64 : i64) outs(%32 : tensor<4x64xi64>) -> tensor<4x64xi64>
    %34 = tensor.empty() : tensor<4x64xf32>
    %35 = linalg.fill ins(%cst_1 : f32) outs(%34 : tensor<4x64xf32>) -> tensor<4x64xf32>
    %36:2 = linalg.generic {indexing_maps = [#map3, #map4, #map4], iterator_types = ["parallel", "parallel", "reduction"]} ins(%31 : tensor<4x64x64xf32>) outs(%35, %33 : tensor<4x64xf32>, tensor<4x64xi64>) {
    ^bb0(%in: f32, %out: f32, %out_20: i64):
      %75 = linalg.index 2 : index
      %76 = arith.index_cast %75 : index to i64
      %77 = arith.maximumf %in, %out : f32
      %78 = arith.cmpf ogt, %in, %out : f32
      %79 = arith.select %78, %76, %out_20 : i64
      linalg.yield %77, %79 : f32, i64
    } -> (tensor<4x64xf32>, tensor<4x64xi64>)
    %expanded_14 = tensor.expand_shape %36#0 [[0], [1, 2]] output_shape [4, 64, 1] : tensor<4x64xf32> into tensor<4x64x1xf32>
    %37 = linalg.generic {indexing_maps = [#map3, #map5, #map3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%31, %expanded_14 : tensor<4x64x64xf32>, tensor<4x64x1xf32>) outs(%28 : tensor<4x64x64xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %75 = arith.subf %in, %in_20 : f32
      linalg.yield %75 : f32
    } -> tensor<4x64x64xf32>
    %38 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%37 : tensor<4x64x64xf32>) outs(%28 : tensor<4x64x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %75 = math.exp %in : f32
      linalg.yield %75 : f32
    } -> tensor<4x64x64xf32>
    %39 = tensor.empty() : tensor<4x64x1xf32>
    %40 = linalg.fill ins(%cst_0 : f32) outs(%39 : tensor<4x64x1xf32>) -> tensor<4x64x1xf32>
    %41 = linalg.generic {indexing_maps = [#map3, #map5], iterator_types = ["parallel", "parallel", "reduction"]} ins(%38 : tensor<4x64x64xf32>) outs(%40 : tensor<4x64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %75 = arith.addf %in, %out : f32
      linalg.yield %75 : f32
    } -> tensor<4x64x1xf32>
    %42 = linalg.generic {indexing_maps = [#map3, #map5, #map3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%38, %41 : tensor<4x64x64xf32>, tensor<4x64x1xf32>) outs(%28 : tensor<4x64x64xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %75 = arith.divf %in, %in_20 : f32
      linalg.yield %75 : f32
    } -> tensor<4x64x64xf32>
    %43 = linalg.fill ins(%cst_0 : f32) outs(%26 : tensor<4x64x32xf32>) -> tensor<4x64x32xf32>
    %44 = linalg.batch_matmul ins(%42, %transposed_12 : tensor<4x64x64xf32>, tensor<4x64x32xf32>) outs(%43 : tensor<4x64x32xf32>) -> tensor<4x64x32xf32>
    %45 = tensor.empty() : tensor<64x4x32xf32>
    %transposed_15 = linalg.transpose ins(%44 : tensor<4x64x32xf32>) outs(%45 : tensor<64x4x32xf32>) permutation = [1, 0, 2] 
    %collapsed_16 = tensor.collapse_shape %transposed_15 [[0], [1, 2]] : tensor<64x4x32xf32> into tensor<64x128xf32>
    %46 = tensor.empty() : tensor<128x128xf32>
    %transposed_17 = linalg.transpose ins(%arg4 : tensor<128x128xf32>) outs(%46 : tensor<128x128xf32>) permutation = [1, 0] 
    %47 = linalg.fill ins(%cst_0 : f32) outs(%17 : tensor<64x128xf32>) -> tensor<64x128xf32>
    %48 = linalg.matmul ins(%collapsed_16, %transposed_17 : tensor<64x128xf32>, tensor<128x128xf32>) outs(%47 : tensor<64x128xf32>) -> tensor<64x128xf32>
    %49 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %48 : tensor<64x128xf32>, tensor<64x128xf32>) outs(%17 : tensor<64x128xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %75 = arith.addf %in, %in_20 : f32
      linalg.yield %75 : f32
    } -> tensor<64x128xf32>
    %50 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%49 : tensor<64x128xf32>) outs(%0 : tensor<64x128xf64>) {
    ^bb0(%in: f32, %out: f64):
      %75 = arith.extf %in : f32 to f64
      linalg.yield %75 : f64
    } -> tensor<64x128xf64>
    %51 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%50 : tensor<64x128xf64>) outs(%3 : tensor<64x1xf64>) {
    ^bb0(%in: f64, %out: f64):
      %75 = arith.addf %in, %out : f64
      linalg.yield %75 : f64
    } -> tensor<64x1xf64>
    %52 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%51 : tensor<64x1xf64>) outs(%2 : tensor<64x1xf64>) {
    ^bb0(%in: f64, %out: f64):
      %75 = arith.divf %in, %cst_5 : f64
      linalg.yield %75 : f64
    } -> tensor<64x1xf64>
    %53 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%50, %52 : tensor<64x128xf64>, tensor<64x1xf64>) outs(%0 : tensor<64x128xf64>) {
    ^bb0(%in: f64, %in_20: f64, %out: f64):
      %75 = arith.subf %in, %in_20 : f64
      linalg.yield %75 : f64
    } -> tensor<64x128xf64>
    %54 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%53, %53 : tensor<64x128xf64>, tensor<64x128xf64>) outs(%0 : tensor<64x128xf64>) {
    ^bb0(%in: f64, %in_20: f64, %out: f64):
      %75 = arith.mulf %in, %in_20 : f64
      linalg.yield %75 : f64
    } -> tensor<64x128xf64>
    %55 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%54 : tensor<64x128xf64>) outs(%3 : tensor<64x1xf64>) {
    ^bb0(%in: f64, %out: f64):
      %75 = arith.addf %in, %out : f64
      linalg.yield %75 : f64
    } -> tensor<64x1xf64>
    %56 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%55 : tensor<64x1xf64>) outs(%2 : tensor<64x1xf64>) {
    ^bb0(%in: f64, %out: f64):
      %75 = arith.divf %in, %cst_5 : f64
      linalg.yield %75 : f64
    } -> tensor<64x1xf64>
    %57 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%56 : tensor<64x1xf64>) outs(%10 : tensor<64x1xf32>) {
    ^bb0(%in: f64, %out: f32):
      %75 = arith.truncf %in : f64 to f32
      linalg.yield %75 : f32
    } -> tensor<64x1xf32>
    %58 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%49 : tensor<64x128xf32>) outs(%12 : tensor<64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %75 = arith.addf %in, %out : f32
      linalg.yield %75 : f32
    } -> tensor<64x1xf32>
    %59 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%58 : tensor<64x1xf32>) outs(%10 : tensor<64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %75 = arith.divf %in, %cst_6 : f32
      linalg.yield %75 : f32
    } -> tensor<64x1xf32>
    %60 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%57 : tensor<64x1xf32>) outs(%10 : tensor<64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %75 = arith.truncf %cst_4 : f64 to f32
      %76 = arith.addf %in, %75 : f32
      linalg.yield %76 : f32
    } -> tensor<64x1xf32>
    %61 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%60 : tensor<64x1xf32>) outs(%10 : tensor<64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %75 = math.rsqrt %in : f32
      linalg.yield %75 : f32
    } -> tensor<64x1xf32>
    %62 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%49, %59 : tensor<64x128xf32>, tensor<64x1xf32>) outs(%17 : tensor<64x128xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %75 = arith.subf %in, %in_20 : f32
      linalg.yield %75 : f32
    } -> tensor<64x128xf32>
    %63 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%62, %61 : tensor<64x128xf32>, tensor<64x1xf32>) outs(%17 : tensor<64x128xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %75 = arith.mulf %in, %in_20 : f32
      linalg.yield %75 : f32
    } -> tensor<64x128xf32>
    %64 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%63, %arg1 : tensor<64x128xf32>, tensor<128xf32>) outs(%17 : tensor<64x128xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %75 = arith.mulf %in, %in_20 : f32
      linalg.yield %75 : f32
    } -> tensor<64x128xf32>
    %65 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%64, %arg2 : tensor<64x128xf32>, tensor<128xf32>) outs(%17 : tensor<64x128xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %75 = arith.addf %in, %in_20 : f32
      linalg.yield %75 : f32
    } -> tensor<64x128xf32>
    %66 = tensor.empty() : tensor<128x512xf32>
    %transposed_18 = linalg.transpose ins(%arg5 : tensor<512x128xf32>) outs(%66 : tensor<128x512xf32>) permutation = [1, 0] 
    %67 = tensor.empty() : tensor<64x512xf32>
    %68 = linalg.fill ins(%cst_0 : f32) outs(%67 : tensor<64x512xf32>) -> tensor<64x512xf32>
    %69 = linalg.matmul ins(%65, %transposed_18 : tensor<64x128xf32>, tensor<128x512xf32>) outs(%68 : tensor<64x512xf32>) -> tensor<64x512xf32>
    %70 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%69 : tensor<64x512xf32>) outs(%67 : tensor<64x512xf32>) {
    ^bb0(%in: f32, %out: f32):
      %75 = arith.negf %in : f32
      %76 = math.exp %75 : f32
      %77 = arith.addf %76, %cst_2 : f32
      %78 = arith.divf %cst_2, %77 : f32
      linalg.yield %78 : f32
    } -> tensor<64x512xf32>
    %71 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%69, %70 : tensor<64x512xf32>, tensor<64x512xf32>) outs(%67 : tensor<64x512xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %75 = arith.mulf %in, %in_20 : f32
      linalg.yield %75 : f32
    } -> tensor<64x512xf32>
    %72 = tensor.empty() : tensor<512x128xf32>
    %transposed_19 = linalg.transpose ins(%arg6 : tensor<128x512xf32>) outs(%72 : tensor<512x128xf32>) permutation = [1, 0] 
    %73 = linalg.matmul ins(%71, %transposed_19 : tensor<64x512xf32>, tensor<512x128xf32>) outs(%47 : tensor<64x128xf32>) -> tensor<64x128xf32>
    %74 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%49, %73 : tensor<64x128xf32>, tensor<64x128xf32>) outs(%17 : tensor<64x128xf32>) {
    ^bb0(%in: f32, %in_20: f32, %out: f32):
      %75 = arith.addf %in, %in_20 : f32
      linalg.yield %75 : f32
    } -> tensor<64x128xf32>
    return %74 : tensor<64x128xf32>
  }
}
